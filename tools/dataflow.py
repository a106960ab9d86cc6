"""Find out on which other cells a cell of a notebook depends, by the names that the cells assign and read.

Nothing is executed: the syntax trees say which names a cell needs from the cells before it. Where this cannot be known,
as after a condition, both possibilities are considered.
"""

import ast
import re
from functools import cache


@cache
def tree_of(source: str) -> ast.Module:
    """Return the syntax tree of the source code of a cell, without the lines that only IPython understands (magics)."""
    return ast.parse(re.sub(r"(?m)^%.*$", "", source))


@cache
def generators_of(cell: ast.Module) -> list[str]:
    """Return the names to which a cell assigns a new generator of random numbers, such as `rng = default_rng(1)`."""
    pairs = []
    for node in (node for node in ast.walk(cell) if isinstance(node, ast.Assign)):
        target, value = node.targets[0], node.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs += zip(target.elts, value.elts, strict=False) if both else [(target, value)]
    return [name.id for name, made in pairs if isinstance(name, ast.Name) and "default_rng" in ast.unparse(made)]


class Names(ast.NodeVisitor):
    """Collect the names that a cell reads before it assigns them, those that it assigns or may change, and its imports.

    A name is changed by an assignment to an attribute or an item of its object, and by a method that is called as a
    statement (`rows.append(row)`). A generator of random numbers is changed by every use. An assignment within a loop
    or a condition may not be executed, so the name counts as assigned only inside of it. Names of comprehensions and
    lambdas are local to them.
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
        """Record a name as read or as assigned.

        A name that stands for a generator of random numbers is also recorded as changed when it is read, because each
        use changes the generator.
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
        """Record each name that is imported, together with an import statement for this name alone."""
        for alias in node.names:
            only = type(node)(**{**vars(node), "names": [alias]})
            self.imports[alias.asname or alias.name.partition(".")[0]] = ast.unparse(only)

    visit_ImportFrom = visit_Import

    def visit_Assign(self, node: ast.Assign) -> None:
        """Visit the value of an assignment before its targets, because it is evaluated first."""
        for part in (node.value, *node.targets):
            self.visit(part)
        for target in node.targets:
            self.change(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Record the target of an assignment such as ``a += b`` as read and then as assigned."""
        self.visit(node.value)
        self.reads |= {self.root(node.target)} - self.sure - {""}
        self.visit(node.target)
        self.change(node.target)

    def visit_For(self, node: ast.For) -> None:
        """Visit the iterable of a loop, and then the loop's body as a block that may not be executed."""
        self.visit(node.iter)
        self.visit_block([node.target, *node.body, *node.orelse])

    def visit_If(self, node: ast.If | ast.While) -> None:
        """Visit the condition of an `if` or a `while`, and then its blocks, each of which may not be executed."""
        self.visit(node.test)
        self.visit_block(node.body)
        self.visit_block(node.orelse)

    visit_While = visit_If

    def visit_block(self, block: list[ast.AST]) -> None:
        """Visit a block that may not be executed: what it assigns counts as assigned within it, but not after it."""
        before = set(self.sure)
        for part in block:
            self.visit(part)
        self.sure = before

    def visit_Expr(self, node: ast.Expr) -> None:
        """Visit an expression that is a statement; if it calls a method, record the method's object as changed."""
        self.visit(node.value)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self.change(node.value.func)

    def visit_comprehension_of(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        """Visit a comprehension: first its outermost iterable, then the rest, in which its own names are local."""
        self.visit(node.generators[0].iter)
        stored = [part for each in node.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)]
        self.own.append({part.id for part in stored})
        self.generic_visit(node)
        self.own.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_of

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Visit a lambda function, whose arguments are local to it."""
        self.visit(node.args)
        self.own.append({arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)})
        self.visit(node.body)
        self.own.pop()

    def root(self, target: ast.expr) -> str:
        """Return the name with which an expression such as `name.part[0].rest` begins, or "" if there is none."""
        while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
            target = target.value
        return target.id if isinstance(target, ast.Name) else ""

    def change(self, target: ast.expr) -> None:
        """Record the first name of an expression as changed; `rows` for the assignment to `rows[0].size`, for example.

        If the expression is a tuple or a list, this is done for each of its entries.
        """
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            self.gives |= {self.root(part)} - {""}


names_of = cache(Names)


def dependencies(code: dict[str, str], cell: str) -> tuple[list[str], list[str]]:
    """Return the cells on which `cell` depends by its names, followed by `cell` itself, and the imports that they use.

    `code` has the source of each cell of a notebook by the cell's name. Cells are counted as a whole: if one of two
    results of a cell depends on another cell, both do.
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
