"""The reference of the package, made of its docstrings and its signatures.

Each public module becomes a file of reStructuredText that a page of `book/api` includes: its docstring, then each name
of its `__all__` with its signature as the source has it, in the terms of Sphinx's Python domain, so that every name is
an anchor, an entry of the index, and the target of `{py:func}`. The commands become lists of options.

As a Sphinx extension, this module says what the types in the signatures are: a class of egm is a link, and a type of
another package, whose documentation is elsewhere, is text.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import egm
from egm import cli
from tools.prose import escape, inline, literal, to_rst

PACKAGE = Path(egm.__file__).parent
ALIAS = re.compile(r"^(\w+): TypeAlias = (.+?)(?:  # (.*))?$", re.MULTILINE)
LONG = 20  # lines about a module that a reader should not have to pass on the way to its names


class Text:
    """An annotation or a default as the source has it; signatures show its representation."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def modules() -> list[ModuleType]:
    """Every public module of the package."""
    files = [*sorted(PACKAGE.glob("[!_]*.py")), *sorted(PACKAGE.glob("study/[!_]*.py"))]
    return [importlib.import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)) for file in files]


def own(module: ModuleType) -> list[str]:
    """The public names of a module but for those that it borrows from a public one: constants, then by the source."""
    homes = {name: getattr(getattr(module, name), "__module__", None) for name in module.__all__}
    defined = [name for name, home in homes.items() if home == module.__name__ or (home or "").startswith("egm._")]
    constants = [name for name, home in homes.items() if home is None]
    return constants + sorted(defined, key=lambda name: inspect.getsourcelines(unwrap(getattr(module, name)))[1])


def unwrap(thing: object) -> object:
    """What a decorator or a property is about."""
    return inspect.unwrap(thing.fget if isinstance(thing, property) else thing)


def members(cls: type) -> dict[str, object]:
    """The public methods and properties of a class that it defines itself, in the order of the source."""
    return {
        name: member
        for name, member in vars(cls).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


def computed(cls: type) -> list[str]:
    """The fields of a dataclass that are no arguments of its constructor."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return [field.name for field in fields if not field.init and not field.name.startswith("_")]


@functools.cache
def catalogue() -> dict[str, object]:
    """{full name: object} of everything that the reference has an anchor for; None for a field."""
    found: dict[str, object] = {}
    for module in modules():
        found[module.__name__] = module
        for name in own(module):
            full, thing = f"{module.__name__}.{name}", getattr(module, name)
            found[full] = thing
            if inspect.isclass(thing):
                inside = {**dict.fromkeys(computed(thing)), **members(thing)}
                found |= {f"{full}.{each}": member for each, member in inside.items()}
    return found


def linker(known: dict[str, object], scope: str) -> Callable[[str], str | None]:
    """What a name means in the docstring of a module, a class or a function: its full name, or None."""
    places = [".".join(scope.split(".")[:depth]) for depth in range(len(scope.split(".")), 0, -1)]
    unique = {full.rpartition(".")[2]: full for full, thing in known.items() if inspect.isclass(thing)}

    def link(name: str) -> str | None:
        name = re.sub(r"\(.*?\)", "", name, flags=re.DOTALL)
        module = importlib.import_module(".".join(scope.split(".")[: 3 if scope.startswith("egm.study.") else 2]))
        borrowed = getattr(getattr(module, name, None), "__module__", "") if name.isidentifier() else ""
        candidates = [*(f"{place}.{name}" for place in places), unique.get(name), f"{borrowed}.{name}", name]
        return next((found for found in candidates if found in known and found != scope), None)

    return link


# Signatures -----------------------------------------------------------------------------------------------------------


def signature(thing: object) -> inspect.Signature | None:
    """How to call it, with annotations as in the source but without the packages they come from; None: not at all."""
    if inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing):
        return None
    given, written = inspect.signature(thing), annotations(unwrap(thing))
    parameters = [
        parameter.replace(
            annotation=written.get(parameter.name, parameter.empty),
            default=Text("{}") if repr(parameter.default) == "<factory>" else parameter.default,
        )
        for parameter in given.parameters.values()
        if parameter.name != "self"
    ]
    returned = inspect.Signature.empty if inspect.isclass(thing) else written.get("return", inspect.Signature.empty)
    return given.replace(parameters=parameters, return_annotation=returned)


def annotations(thing: object) -> dict[str, Text]:
    """{parameter, field or "return": its type} as the source says it."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    if isinstance(node, ast.ClassDef):
        fields = {each.target.id: each.annotation for each in node.body if isinstance(each, ast.AnnAssign)}
        inits = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        return {name: short(note) for name, note in fields.items()} | (of_function(inits[0]) if inits else {})
    return of_function(node)


def of_function(node: ast.FunctionDef) -> dict[str, Text]:
    """The annotations of a function."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    found = {each.arg: short(each.annotation) for each in arguments if each and each.annotation}
    return found | ({"return": short(node.returns)} if node.returns else {})


def short(annotation: ast.expr) -> Text:
    """A type without the package it comes from: Generator for np.random.Generator."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    return Text(re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(text)))


# Directives -----------------------------------------------------------------------------------------------------------


def directive(kind: str, name: str, options: dict[str, str], *body: str) -> str:
    """A directive of the Python domain."""
    lines = [f".. py:{kind}:: {name}", *(f"   :{option}: {value}" for option, value in options.items())]
    return "\n".join(lines) + "\n\n" + textwrap.indent("\n\n".join(filter(None, body)), "   ") + "\n"


def of_module(module: ModuleType, known: dict[str, object]) -> str:
    """The whole reference of a module: what it is, its names, and how it works if there is much to say about that."""
    about, more = divided(inspect.getdoc(module))
    entries = [entry(f"{module.__name__}.{name}", getattr(module, name), known) for name in own(module)]
    types = aliases(Path(module.__file__), entries)
    notes = [".. rubric:: How it works", to_rst(more, linker(known, module.__name__))] if more else []
    head = to_rst(about, linker(known, module.__name__))
    return "\n\n".join([directive("module", module.__name__, {}), head, *entries, *types, *notes])


def aliases(source: Path, entries: list[str]) -> list[str]:
    """What the names of types stand for that a source defines and that the signatures of these entries use."""
    shown = " ".join(line for entry in entries for line in entry.splitlines() if re.match(r" *(\.\. py|:type):", line))
    terms = []
    for name, value, comment in ALIAS.findall(source.read_text()):
        if re.search(rf"\b{name}\b", shown):
            stands_for = [] if value == "Any" else [literal(repr(short(ast.parse(value, mode="eval").body)))]
            terms.append(f"{literal(name)}\n   {': '.join([*stands_for, *filter(None, [plain(comment)])])}")
    return [".. rubric:: Types", "\n\n".join(terms)] if terms else []


def divided(text: str) -> tuple[str, str]:
    """The first two paragraphs, up to the end of their sentence or example, and the rest if that is long."""
    blocks = text.split("\n\n")
    end = min(2, len(blocks))
    while end < len(blocks) and not (blocks[end - 1].endswith(".") or blocks[end - 1].startswith("  ")):
        end += 1
    first, rest = "\n\n".join(blocks[:end]), "\n\n".join(blocks[end:])
    return (first, rest) if len(rest.splitlines()) > LONG else (text, "")


def entry(name: str, thing: object, known: dict[str, object]) -> str:
    """The directive for a public name of a module, which is its full name."""
    short_name = name.rpartition(".")[2]
    if inspect.isclass(thing):
        kind = "exception" if issubclass(thing, BaseException) else "class"
        options = {"canonical": f"egm.{short_name}"} if short_name in egm.__all__ else {}
        inner = [*attributes(thing), *(member(f"{name}.{each}", of, known) for each, of in members(thing).items())]
        return directive(
            kind, f"{short_name}{signature(thing) or ''}", options, bases(thing), prose(name, thing, known), *inner
        )
    if inspect.isroutine(unwrap(thing)):
        return directive("function", f"{short_name}{signature(thing)}", {}, prose(name, thing, known))
    return directive("data", short_name, {"value": repr(thing)})


def bases(cls: type) -> str:
    """A line that names the classes from which a user can tell how to treat this one."""
    names = [base.__name__ for base in cls.__bases__ if base not in (object, tuple)]
    return f"Bases: {', '.join(f'``{name}``' for name in names)}" if names else ""


def attributes(cls: type) -> list[str]:
    """The fields that the constructor computes; what they are stands in the docstring of the class."""
    types = annotations(cls) if computed(cls) else {}
    return [directive("attribute", name, {"type": repr(types[name])}).rstrip() + "\n" for name in computed(cls)]


def member(name: str, thing: object, known: dict[str, object]) -> str:
    """The directive for a method or a property."""
    short_name = name.rpartition(".")[2]
    if not isinstance(thing, property):
        return directive("method", f"{short_name}{signature(thing)}", {}, prose(name, thing, known))
    returned = None if thing.fget.__name__ == "<lambda>" else signature(thing.fget).return_annotation
    options = {"type": repr(returned)} if isinstance(returned, Text) else {}
    return directive("property", short_name, options, prose(name, thing, known))


def prose(name: str, thing: object, known: dict[str, object]) -> str:
    """The docstring; every public name has one."""
    text = inspect.getdoc(thing) if not inspect.isclass(thing) else thing.__dict__["__doc__"] and inspect.getdoc(thing)
    if not text or text.startswith(f"{name.rpartition('.')[2]}("):  # the second is what a dataclass makes up
        raise ValueError(f"{name} has no docstring")
    given = () if isinstance(thing, property) else (signature(thing) or inspect.Signature()).parameters
    fields = computed(thing) if inspect.isclass(thing) else ()
    return to_rst(text, linker(known, name), {*given, *fields})


def overview(known: dict[str, object], pages: Path) -> str:
    """Every page of a folder in the order of the book, with its modules, what they are about and their names."""
    order = re.findall(rf"- file: book/{pages.name}/(\S+)", (pages.parent.parent / "_toc.yml").read_text())
    parts = []
    for page in (pages / f"{name}.md" for name in order):
        parts.append(f":doc:`{pages.name}/{page.stem}`")
        parts += [summary(known[name], known) for name in re.findall(r"generated/(egm[.\w]+)\.rst", page.read_text())]
    return "\n".join(parts)


def summary(module: ModuleType, known: dict[str, object]) -> str:
    """The first sentence about a module, and its names, each a link."""
    first = re.split(r"(?<=\.)\s", inspect.getdoc(module), maxsplit=1)[0]
    about = inline(" ".join(first.split()), linker(known, module.__name__), ())
    names = ", ".join(f":py:obj:`{name} <{module.__name__}.{name}>`" for name in own(module))
    return f"   | :py:mod:`{module.__name__}`: {about}\n   | {names}\n"


# The command line -----------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command of egm, and how it reads its options."""
    for action in cli._parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def of_command(name: str, parser: argparse.ArgumentParser) -> str:
    """What a command says under --help, option by option."""
    about, _, example = parser.description.partition("\n\nexample:\n")
    shown = f".. code-block:: console\n\n   $ {example.strip()}" if example else ""
    options = [option(action) for action in parser._actions if action.dest != "help"]
    return "\n\n".join([f".. program:: egm {name}", plain(about), shown, *options])


def option(action: argparse.Action) -> str:
    """An option of a command, or what it takes without a name."""
    value = action.metavar or ("|".join(action.choices) if action.choices else "")
    names = ", ".join(f"{flag} {value}".strip() for flag in action.option_strings) or value
    help_text = plain(action.help)
    if action.choices and "|".join(action.choices) != value:
        help_text += f" ({escape(', '.join(action.choices))})"
    required = " Required." if action.required and action.option_strings else ""
    return f".. option:: {names}\n\n   {help_text[0].upper()}{help_text[1:]}.{required}"


def plain(text: str) -> str:
    """A help text, whose only names are options."""
    return inline(text, lambda name: None, ())


# The book -------------------------------------------------------------------------------------------------------------


def write(folder: Path) -> None:
    """Put the reference into a folder, a file for each module and each command."""
    known = catalogue()
    written = {module.__name__: of_module(module, known) for module in modules()}
    for name, text in written.items():
        (folder / f"{name}.rst").write_text(text)
    shared = [each for path in PACKAGE.glob("_types.py") for each in aliases(path, [*written.values()])]
    (folder / "api-types.rst").write_text("\n\n".join(shared))
    for name, parser in commands():
        (folder / f"command-{name}.rst").write_text(of_command(name, parser))
    (folder / "api-overview.rst").write_text(overview(known, folder.parent / "api"))


def know_types(app, env, node, contnode):
    """A type in a signature: a public class of egm leads to its entry, any other name in the source is text."""
    if node.get("refdomain") != "py" or node.get("reftype") != "class" or not node.get("py:module"):
        return None
    name = node["reftarget"]
    thing = getattr(importlib.import_module(node["py:module"]), name, None)
    target = f"{thing.__module__}.{name}" if inspect.isclass(thing) else ""
    if target in catalogue():
        return env.get_domain("py").resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, contnode)
    sources = (path.read_text() for path in PACKAGE.rglob("*.py"))
    return contnode if any(re.search(rf"\b{re.escape(name)}\b", text) for text in sources) else None


def setup(app):
    """Answer for the references that Sphinx cannot resolve."""
    app.connect("missing-reference", know_types)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
