"""Find out on which cells of a chapter a cell depends, by the names that cells assign and read.

A chapter is a list of cells that share their names. Nothing is executed: the syntax tree says which names a cell needs
from the cells before it. Where that cannot be known, as after a condition, both possibilities are taken.
"""

import ast
import re
from functools import cache


@cache
def tree_of(source: str) -> ast.Module:
    """Return the syntax tree of a cell, without what IPython alone understands."""
    return ast.parse(re.sub(r"(?m)^%.*$", "", source))


@cache
def generators_of(cell: ast.Module) -> list[str]:
    """Return the names to which a cell assigns a new generator of random numbers."""
    pairs = []
    for node in (node for node in ast.walk(cell) if isinstance(node, ast.Assign)):
        target, value = node.targets[0], node.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs += zip(target.elts, value.elts, strict=False) if both else [(target, value)]
    return [name.id for name, made in pairs if isinstance(name, ast.Name) and "default_rng" in ast.unparse(made)]


class Names(ast.NodeVisitor):
    """The names that a cell reads before it assigns them, those it assigns or may change, and its imports.

    A name is changed by an assignment to an attribute or a part of it, by a method that is called for its effect
    (`rows.append(row)`), and if it is a generator of random numbers by every use. After a loop or a condition it is
    not sure that what stands in there was assigned. Names of comprehensions and lambdas are their own.
    """

    def __init__(self, cell: ast.Module, generators: frozenset[str] = frozenset()) -> None:
        self.reads: set[str] = set()
        self.gives: set[str] = set()
        self.sure: set[str] = set()
        self.imports: dict[str, str] = {}
        self.own: list[set[str]] = []
        self.generators = generators
        self.visit(cell)

    def visit_Name(self, node: ast.Name) -> None:
        """Note a name as read, assigned, or (a random generator) sampled from."""
        if any(node.id in names for names in self.own):
            return
        if not isinstance(node.ctx, ast.Load):
            self.sure.add(node.id)
        elif node.id not in self.sure:
            self.reads.add(node.id)
        if not isinstance(node.ctx, ast.Load) or node.id in self.generators:
            self.gives.add(node.id)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note each name with the one statement that imports it."""
        for alias in node.names:
            only = type(node)(**{**vars(node), "names": [alias]})
            self.imports[alias.asname or alias.name.partition(".")[0]] = ast.unparse(only)

    visit_ImportFrom = visit_Import

    def visit_Assign(self, node: ast.Assign) -> None:
        """Read the value before the targets are assigned."""
        for part in (node.value, *node.targets):
            self.visit(part)
        for target in node.targets:
            self.change(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Read the target, then assign it."""
        self.visit(node.value)
        self.reads |= {self.root(node.target)} - self.sure - {""}
        self.visit(node.target)
        self.change(node.target)

    def visit_For(self, node: ast.For) -> None:
        """Visit the iterable, and the body, which may never run."""
        self.visit(node.iter)
        self.visit_block([node.target, *node.body, *node.orelse])

    def visit_If(self, node: ast.If | ast.While) -> None:
        """Visit both blocks, of which one runs."""
        self.visit(node.test)
        self.visit_block(node.body)
        self.visit_block(node.orelse)

    visit_While = visit_If

    def visit_block(self, block: list[ast.AST]) -> None:
        """Visit a block; what it assigns is sure inside of it, and not after it."""
        before = set(self.sure)
        for part in block:
            self.visit(part)
        self.sure = before

    def visit_Expr(self, node: ast.Expr) -> None:
        """Note the object of a method that is called for its effect as changed."""
        self.visit(node.value)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self.change(node.value.func)

    def visit_comprehension_of(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        """Visit the first iterable outside of the comprehension, where its names do not exist yet."""
        self.visit(node.generators[0].iter)
        stored = [part for each in node.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)]
        self.own.append({part.id for part in stored})
        self.generic_visit(node)
        self.own.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_of

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Visit a lambda, whose arguments are its own."""
        self.visit(node.args)
        self.own.append({arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)})
        self.visit(node.body)
        self.own.pop()

    def root(self, target: ast.expr) -> str:
        """Return the name at the left end of `name.part[0].rest`, or nothing."""
        while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
            target = target.value
        return target.id if isinstance(target, ast.Name) else ""

    def change(self, target: ast.expr) -> None:
        """Note that the name at the left end is assigned, or a part of it."""
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            self.gives |= {self.root(part)} - {""}


names_of = cache(Names)


def dependencies(code: dict[str, str], cell: str) -> tuple[list[str], list[str]]:
    """Return the cells on which a cell depends by its names, itself last, and the imports that they use.

    Whole cells: where one of two findings of a cell depends on another cell, both do.
    """
    trees = {name: tree_of(code[name]) for name in list(code)[: list(code).index(cell) + 1]}
    generators = frozenset(name for tree in trees.values() for name in generators_of(tree))
    names = {name: names_of(tree, generators) for name, tree in trees.items()}
    imports = {name: line for each in names.values() for name, line in each.imports.items()}
    needed, used, found = set(names[cell].reads), set(names[cell].reads), [cell]
    for name in list(names)[-2::-1]:
        if names[name].gives & needed - imports.keys():
            found.append(name)
            needed = needed - names[name].sure | names[name].reads
            used |= names[name].reads
    return found[::-1], sorted({imports[name] for name in used & imports.keys()})
