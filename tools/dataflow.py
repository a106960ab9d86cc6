"""Find out on which other cells a cell of a notebook depends, by the names that the cells assign and read.

Nothing is executed: the syntax trees say which names a cell needs from the cells before it. Where they do not say
whether a name is assigned, as in the body of an `if`, both possibilities are considered. Not seen is a change of an
object by a function that gets it as an argument, through another name, or by a method within an expression.
"""

import ast
import re
from functools import cache


@cache
def tree_of(source: str) -> ast.Module:
    """Return the syntax tree of the notebook cell with the code `source`, without the lines that begin with "%".

    Such lines are magics, commands of IPython that are no Python code.
    """
    return ast.parse(re.sub(r"(?m)^%.*$", "", source))


@cache
def generators_of(cell: ast.Module) -> list[str]:
    """Return the names to which a notebook cell, given by its syntax tree, assigns a new random generator.

    The name is `rng` if the cell has the line `rng = default_rng(1)`, for example.
    """
    pairs = []
    for node in (node for node in ast.walk(cell) if isinstance(node, ast.Assign)):
        target, value = node.targets[0], node.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs += zip(target.elts, value.elts, strict=False) if both else [(target, value)]
    return [name.id for name, made in pairs if isinstance(name, ast.Name) and "default_rng" in ast.unparse(made)]


class Names(ast.NodeVisitor):
    """Collect the names that a notebook cell reads, assigns or changes, and the import statements of the cell.

    `cell` is the syntax tree of the cell, and `generators` has the names of random generators.

    `reads` are the names that the cell reads before it assigns them, and `gives` those that it assigns or may change.
    The names in `sure` are assigned whenever the cell runs, so not only within a loop or a condition, or where an
    exception may be caught. `imports` is a dictionary from an imported name to its import statement.

    A name is changed by an assignment to an attribute or an item of its object, and by a method that is called as a
    statement (`rows.append(row)`). A random generator is changed by every use. Names that belong only to a
    comprehension or a lambda function are left out.
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
        """Record the name `node` as read or as assigned by the cell; a random generator is recorded as changed, too.

        Names that belong only to a surrounding comprehension or lambda function are not recorded.
        """
        if any(node.id in names for names in self.own):
            return
        if not isinstance(node.ctx, ast.Load):
            self.sure.add(node.id)
        elif node.id not in self.sure:
            self.reads.add(node.id)
        if not isinstance(node.ctx, ast.Load) or node.id in self.generators:
            self.gives.add(node.id)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Record each name that the import statement `node` imports, with an import statement for this name alone."""
        for alias in node.names:
            only = type(node)(**{**vars(node), "names": [alias]})
            self.imports[alias.asname or alias.name.partition(".")[0]] = ast.unparse(only)

    visit_ImportFrom = visit_Import

    def visit_Assign(self, node: ast.Assign) -> None:
        """Visit the value of the assignment `node` before its targets, because Python evaluates the value first.

        The name with which each target begins is recorded as changed: `a` for `a[0] = 1`, for example.
        """
        for part in (node.value, *node.targets):
            self.visit(part)
        for target in node.targets:
            self.change(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Record the target of an assignment such as ``a += b``, the syntax node `node`, as read and then as assigned.

        For ``a[0] += b`` the recorded name is `a`.
        """
        self.visit(node.value)
        self.reads |= {self.root(node.target)} - self.sure - {""}
        self.visit(node.target)
        self.change(node.target)

    def visit_For(self, node: ast.For) -> None:
        """Visit the iterable of the `for` loop `node`, and then the rest of the loop, which may not be executed.

        The rest is the loop's variable, its body and its `else` branch.
        """
        self.visit(node.iter)
        self.visit_block([node.target, *node.body, *node.orelse])

    def visit_If(self, node: ast.If | ast.While) -> None:
        """Visit the condition of `node`, and then its two branches, each of which may not be executed.

        `node` is an `if` or `while` statement, and its branches are the body and the block after `else`.
        """
        self.visit(node.test)
        self.visit_block(node.body)
        self.visit_block(node.orelse)

    visit_While = visit_If

    def visit_With(self, node: ast.With) -> None:
        """Visit the contexts of `node`, and then its body, of which a part may not be executed.

        A context may end the body at an exception, and suppress the exception.
        """
        for item in node.items:
            self.visit(item)
        self.visit_block(node.body)

    def visit_Try(self, node: ast.Try) -> None:
        """Visit each part of the `try` statement `node`; only the `finally` block is sure to be executed."""
        for block in (node.body, *([one.type, *one.body] for one in node.handlers), node.orelse):
            self.visit_block([part for part in block if part])  # a bare `except` has no type
        for part in node.finalbody:
            self.visit(part)

    visit_TryStar = visit_Try

    def visit_block(self, block: list[ast.AST]) -> None:
        """Visit the nodes in the list `block`, which may not be executed, for instance the body of an `if`.

        A name that the block assigns counts as certainly assigned for the later nodes of the block, but not after the
        block.
        """
        before = set(self.sure)
        for part in block:
            self.visit(part)
        self.sure = before

    def visit_Expr(self, node: ast.Expr) -> None:
        """Visit the statement `node`, a single expression; if it is a method call, record the object as changed.

        For example, `rows.append(row)` changes `rows`.
        """
        self.visit(node.value)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self.change(node.value.func)

    def visit_comprehension_of(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        """Visit the comprehension `node`, but do not record its loop variables, which exist only within it.

        The iterable of the first `for` is visited first, because a name in it is never a loop variable of the
        comprehension.
        """
        self.visit(node.generators[0].iter)
        stored = [part for each in node.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)]
        self.own.append({part.id for part in stored})
        self.generic_visit(node)
        self.own.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_of

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Visit the lambda function `node`; the names of its arguments are not recorded in its body."""
        self.visit(node.args)
        self.own.append({arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)})
        self.visit(node.body)
        self.own.pop()

    def root(self, target: ast.expr) -> str:
        """Return the name with which the expression `target` begins: `name` for `name.part[0].rest()`, for example.

        If it begins with something else, such as a bracket, return "".
        """
        while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred, ast.Call)):
            target = target.func if isinstance(target, ast.Call) else target.value
        return target.id if isinstance(target, ast.Name) else ""

    def change(self, target: ast.expr) -> None:
        """Record the name with which the expression `target` begins as changed: `rows` for `rows[0].size`, for example.

        If the expression is a tuple or a list, record the first name of each of its elements.
        """
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            self.gives |= {self.root(part)} - {""}


names_of = cache(Names)


def dependencies(code: dict[str, str], cell: str) -> tuple[list[str], list[str]]:
    """Return two lists: names of notebook cells, and the import statements that the code of these cells needs.

    The names are those of the cells on which `cell` depends, and `cell` itself at the end. `code` is a dictionary from
    the names of all cells, in the order of the notebook, to their code. A cell that reads a name depends on the earlier
    cells that assign or may change this name, and on all cells on which those depend.
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
