"""Parser of the body of a PTX kernel: declarations, labels and instructions. Calls of functions are replaced inline.

Source: PTX ISA, "Syntax", "State Spaces, Types, and Variables" and "Function Declarations and Definitions". Names are
resolved by their scope. Instructions have their line number, for messages.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from ..errors import KernelError
from .program import Address, Instruction, Kernel, Negated, Operand, Register, Symbol, Vector, size_of
from .ptx_operands import NamedOperand, parse_constant, parse_operand, split
from .ptx_variables import check_size

__all__ = ["Body", "Function", "Module"]

#: Maximum number of registers, of instructions and of calls of functions in a kernel, and maximum depth of calls.
_MOST_REGISTERS, _MOST_INSTRUCTIONS, _MOST_CALLS, _DEEPEST_CALL = 1 << 20, 1 << 20, 1 << 14, 64
#: Directives in the body of a kernel that do not affect its results.
_IGNORED = ("loc", "file", "pragma", "maxnreg", "noreturn")
#: Pattern of a declaration in shared or local memory: alignment, vector length, type, name and number of elements.
_STORED = re.compile(
    r"(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<vector>[248])\s+)?\.(?P<type>\w+)\s+(?P<name>[%$\w]+)\s*"
    r"(?:\[(?P<count>\w*)\])?\s*;?$"
)
_SPACES = re.compile(r"\s+")
_LABEL = re.compile(r"([%$\w]+)\s*:(?!:)")
_DIRECTIVE = re.compile(r"\.(\w+)")
_GUARD = re.compile(r"@\s*(!?)\s*([%$\w]+)\s*")
_OPCODE = re.compile(r"[a-z][\w.:]*(?:\s+\.[\w.:]+)*")


@dataclass(frozen=True)
class Function:
    """A function of a module (``.func``)."""

    name: str
    parameters: tuple[str, ...]  #: names of its results and parameters, which are all in parameter space
    begin: int  #: index of the text after the opening brace of its body


class Module(Protocol):
    """Attributes and methods of a module that the parser of a body uses."""

    text: str
    #: Declarations of shared variables, each with its position in the text.
    shared: list[tuple[int, str]]
    functions: dict[str, Function]

    def line(self, place: int) -> int:
        """Return the line number of a position in the text, from 1."""

    def refuse(self, place: int, message: str) -> KernelError:
        """Return an error with the line of a position in the text."""


class Body:
    """Parser of a kernel's body. Names that an inner block (such as inline assembly) declares get a suffix."""

    def __init__(self, module: Module, kernel: Kernel, place: int) -> None:
        self.module, self.kernel, self.place = module, kernel, place
        #: Calls that contain `place`, from the outermost: the called function, and the label after the call.
        self.calls: list[tuple[Function, str]] = []
        #: Number of calls that were replaced by the body of a function.
        self.inlined = 0
        #: Alignment of each variable in dynamic shared memory, which begins after the static variables.
        self.dynamic: dict[str, int] = {}
        #: Bytes of the variables declared so far, by state space.
        self.ends = {"shared": 0, "local": 0}
        #: Number of code blocks (text in braces) that have begun, and the numbers of those blocks that have not ended.
        self.blocks, self.open = 0, [0]
        #: Bytes of local memory that are in use at the start of each block that has not ended.
        self.begun: list[int] = [0]
        #: Operand for each name, by scope: a register, the registers of a vector or of one b128, or a variable.
        self.names: list[dict[str, NamedOperand]] = [{}]
        #: Variable in shared memory for each position of a declaration. All calls of a function use the same variable.
        self.shared: dict[int, Symbol] = {}
        for start, text in module.shared:
            try:
                if start < place:
                    self.declare("shared", text, start)
            except KernelError as error:
                raise module.refuse(start, str(error)) from None
        #: Shared variables of the module.
        self.outer = self.names[0]
        self.names = [{}]
        self.labels: list[dict[str, str]] = [{}]
        self.branches: list[tuple[int, list[dict[str, str]]]] = []
        #: Labels and scopes of each list ``.branchtargets``, by the unique name of the label before the list.
        self.targets: dict[str, tuple[list[str], list[dict[str, str]]]] = {}

    def declare(self, space: str, text: str, place: int) -> None:
        """Allocate a declared variable after earlier variables of its state space. A dynamic variable has size 0.

        The declaration is at the position `place` of the module's text.
        """
        declared = _STORED.search(text)
        if not declared:
            raise KernelError(f"'{text[:60]}' is not a declaration")
        elements = declared["count"]
        unit, count = size_of(declared["type"]), parse_constant("1" if elements is None else elements or "0")
        if count is None:
            raise KernelError(f"'{elements}' is not a number of elements")
        unit *= int(declared["vector"] or 1)
        name, size, alignment = declared["name"], unit * count.value, max(int(declared["align"] or unit), 1)
        check_size(space, size)
        variable = Symbol(f"{name}@{space}{self.open[-1]}")
        if space == "shared":
            variable = self.shared.setdefault(place, variable)
        self.names[-1][name] = variable
        if variable.name in self.kernel.shared or variable.name in self.dynamic:
            return
        if not size:
            self.dynamic[variable.name] = alignment
            return
        start = -(-self.ends[space] // alignment) * alignment
        self.ends[space] = start + size
        (self.kernel.shared if space == "shared" else self.kernel.local)[variable.name] = start, size

    def find(self, name: str) -> NamedOperand | None:
        """Return the operand for a name in the innermost scope that declares the name."""
        scopes = (*reversed(self.names), self.outer)
        return next((names[name] for names in scopes if name in names), None)

    def read(self) -> None:
        """Read the whole body of the kernel."""
        self.block()
        for variable, alignment in self.dynamic.items():
            self.kernel.shared[variable] = (-(-self.ends["shared"] // alignment) * alignment, 0)
        self.resolve()

    def block(self) -> None:
        """Read the statements up to the closing brace of the kernel, or of the function that is called."""
        text, line, last = self.module.text, self.module.line(self.place), self.place
        while self.names:
            if spaces := _SPACES.match(text, self.place):
                self.place = spaces.end()
            line += text.count("\n", last, self.place)
            last = self.place
            char = text[self.place : self.place + 1]
            if char == "{":
                self.blocks += 1
                self.open.append(self.blocks)
                self.begun.append(self.ends["local"])
                self.names.append({})
                self.labels.append({})
                self.place += 1
            elif char == "}":
                self.open.pop()
                self.ends["local"] = self.begun.pop()
                self.names.pop()
                self.labels.pop()
                self.place += 1
            elif label := _LABEL.match(text, self.place):
                self.place = label.end()
                if label[1] in self.labels[-1]:
                    raise KernelError(f"line {line}: a second label has the name '{label[1]}'")
                self.labels[-1][label[1]] = unique = self.unique(label[1])
                self.kernel.labels[unique] = len(self.kernel.instructions)
            else:
                try:
                    self.statement(line)
                except KernelError as error:
                    message = str(error)  # the message of a called function already begins with its line number
                    raise KernelError(message if message.startswith("line ") else f"line {line}: {message}") from None

    def unique(self, name: str) -> str:
        """Return a name that is unique in the kernel, for a name that the current block declares."""
        return f"{name}@{self.open[-1]}" if self.open[-1] else name

    def statement(self, line: int) -> None:
        """Read a directive or an instruction up to its semicolon."""
        text = self.module.text
        directive = _DIRECTIVE.match(text, self.place)
        if directive and directive[1] in ("loc", "file"):
            self.place = text.find("\n", self.place) if "\n" in text[self.place :] else len(text)
            return
        place, end = self.place, text.find(";", self.place)
        if end < 0:
            raise KernelError("the text ends before the ';' of this statement")
        statement = text[place:end].strip()
        self.place = end + 1
        if directive:
            self.directive(directive[1], statement, place)
        elif statement:
            self.instruction(statement, line)

    def directive(self, word: str, statement: str, place: int) -> None:
        """Declare registers, variables or the targets of an indexed branch."""
        if word == "reg":
            declared = re.fullmatch(r"\.reg\s*(?:\.v([24])\s*)?\.(\w+)\s+(.*)", statement, re.DOTALL)
            if not declared:
                raise KernelError(f"'{statement[:60]}' is not a declaration")
            type_, parts = declared[2], (".x", ".y", ".z", ".w")[: int(declared[1] or 0)]
            if type_ == "b128" and not parts:
                type_, parts = "b64", (".x", ".y")
            elif type_ != "pred" and size_of(type_) > 8:
                raise KernelError(f"registers of .{type_} are not modelled")
            for name in split(declared[3]):
                several = re.fullmatch(r"([%$\w]+)<(\d+)>", name)
                if len(self.kernel.registers) + (int(several[2]) if several else 1) > _MOST_REGISTERS:
                    raise KernelError(f"the kernel declares more than {_MOST_REGISTERS} registers")
                for each in [f"{several[1]}{i}" for i in range(int(several[2]))] if several else [name]:
                    items = {each + part: Register(self.unique(each + part), type_) for part in parts or ("",)}
                    self.names[-1] |= items
                    if parts:
                        self.names[-1][each] = Vector(tuple(items.values()))
                    self.kernel.registers |= {item.name: type_ for item in items.values()}
        elif word == "branchtargets" and self.labels[-1]:
            names = split(statement.removeprefix(".branchtargets"))
            self.targets[[*self.labels[-1].values()][-1]] = names, list(self.labels)
        elif word in ("shared", "local", "param"):  # parameters of called functions are in local memory
            space = "local" if word == "param" else word
            self.declare(space, statement, place)
            check_size(space, self.ends[space])
        elif word not in _IGNORED:
            raise KernelError(f"the directive '.{word}' is not modelled inside a kernel")

    def instruction(self, statement: str, line: int) -> None:
        """Read an instruction with its guard and operands."""
        guard: Operand | None = None
        if match := _GUARD.match(statement):
            guard = self.find(match[2])
            if not isinstance(guard, Register):
                raise KernelError(f"'{match[2]}' is not a register")
            guard = Negated(guard) if match[1] else guard
            statement = statement[match.end() :]
        opcode = _OPCODE.match(statement)
        if not opcode:
            raise KernelError(f"'{statement[:60]}' is not an instruction")
        name = "".join(opcode[0].split())
        arguments = split(statement[opcode.end() :])
        operation = name.split(".")[0]
        if operation == "call":
            results = split(arguments.pop(0)[1:-1]) if arguments and arguments[0].startswith("(") else []
            called = arguments.pop(0) if arguments else ""
            rest = arguments.pop(0) if arguments else "()"
            if not rest.startswith("(") or not rest.endswith(")"):
                raise KernelError(f"'{rest[:60]}' is not a list of parameters")
            parameters = split(rest[1:-1])
            if {*results} & {*parameters}:
                raise KernelError("a variable that is both a result and a parameter of a call is not modelled")
            if function := self.module.functions.get(called):
                self.inline(function, [*results, *parameters], guard, line)
                return
            arguments = [called, *parameters, *results]
        operands = tuple(parse_operand(part, self.find) for part in arguments)
        if operation == "ret" and self.calls:
            name, operands = "bra", (Symbol(self.calls[-1][1]),)
        elif operation in ("bra", "brx"):
            self.branches.append((len(self.kernel.instructions), list(self.labels)))
        elif operation in ("ld", "st") and any(self._is_local(operand) for operand in operands):
            name = name.replace(".param", ".local")
        self.add(Instruction(name, operands, guard, line))

    def add(self, ins: Instruction) -> None:
        """Append an instruction to the kernel."""
        if len(self.kernel.instructions) == _MOST_INSTRUCTIONS:
            raise KernelError(f"the kernel and its functions have more than {_MOST_INSTRUCTIONS} instructions")
        self.kernel.instructions.append(ins)

    def _is_local(self, operand: Operand) -> bool:
        base = operand.base if isinstance(operand, Address) else None
        return isinstance(base, Symbol) and base.name in self.kernel.local

    def inline(self, function: Function, arguments: list[str], guard: Operand | None, line: int) -> None:
        """Read a function's body in place of its call. `arguments` are the caller's names of results and parameters."""
        name, variables = function.name, [self.find(each) for each in arguments]
        self.inlined += 1
        if len(self.calls) == _DEEPEST_CALL or self.inlined > _MOST_CALLS:
            raise KernelError(f"calls are nested more than {_DEEPEST_CALL} deep, or there are more than {_MOST_CALLS}")
        if function in [each for each, _ in self.calls]:
            raise KernelError(f"the function {name} calls itself, which is not modelled")
        if len(variables) != len(function.parameters) or not all(isinstance(each, Symbol) for each in variables):
            raise KernelError(
                f"a call of {name} needs a total of {len(function.parameters)} results and parameters in '.param'"
            )
        outer = self.place, self.names, self.labels, self.open, self.begun
        self.blocks += 1
        end = f"@{self.blocks}"  # no label has an empty name
        if guard:
            skipped = guard.operand if isinstance(guard, Negated) else Negated(guard)
            self.add(Instruction("bra", (Symbol(end),), skipped, line))
        scope = {key: each for key, each in zip(function.parameters, variables, strict=True) if each}
        self.place, self.names, self.labels, self.open = function.begin, [scope], [{}], [self.blocks]
        self.begun = [self.ends["local"]]
        self.calls.append((function, end))
        self.block()
        self.calls.pop()
        self.place, self.names, self.labels, self.open, self.begun = outer
        self.kernel.labels[end] = len(self.kernel.instructions)

    def resolve(self) -> None:
        """Replace the labels in branches by unique names. A label may follow the branch in the text."""
        for place, scopes in self.branches:
            branch = self.kernel.instructions[place]
            *index, label = branch.operands or (None,)
            if len(index) != (branch.words[0] == "brx"):
                raise KernelError(f"line {branch.line}: a branch has one label, and 'brx' also an index")
            names = [self._label(label, scopes, branch.line)]
            if index:
                targets, scopes = self.targets.get(names[0], ([], []))
                names = [self._label(Symbol(target), scopes, branch.line) for target in targets]
            if not names:
                raise KernelError(f"line {branch.line}: the label is not that of a list '.branchtargets'")
            operands = (*index, *map(Symbol, names))
            self.kernel.instructions[place] = Instruction(branch.opcode, operands, branch.guard, branch.line)

    def _label(self, operand: Operand | None, scopes: list[dict[str, str]], line: int) -> str:
        """Return the unique name of a label in the innermost scope that declares the label."""
        name = operand.name if isinstance(operand, Symbol) else None
        unique = next((labels[name] for labels in reversed(scopes) if name in labels), None) if name else None
        if unique is None:
            raise KernelError(f"line {line}: there is no label '{name or operand}'")
        return unique
