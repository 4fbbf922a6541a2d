"""Parser of PTX text: a kernel's instructions with operands, registers, labels, parameters and shared variables.

Source: PTX ISA, "Syntax", "State Spaces, Types, and Variables" and "Directives". Names are resolved by their scope.
Instructions have their line number, for messages.
"""

import re
from functools import lru_cache

from ..errors import KernelError
from .program import Instruction, Kernel, Negated, Operand, Parameter, Register, Symbol, Vector, size_of
from .ptx_operands import parse_constant, parse_operand, split
from .ptx_variables import DECLARED, VARIABLE, check_size, initial_content

__all__ = ["parse_ptx"]

#: Latest version of PTX that the parser accepts.
_LATEST_VERSION = (9, 5)
#: Maximum number of registers in a kernel, and maximum number of decimal digits in a number.
_MOST_REGISTERS, _MOST_DIGITS = 1 << 20, 60
#: Directives in the body of a kernel that do not affect its results.
_IGNORED = ("loc", "file", "pragma", "maxnreg", "noreturn")


@lru_cache(maxsize=16)
def parse_ptx(text: str) -> dict[str, Kernel]:
    """Parse a PTX module, and return its entries (kernels) by name.

    Raises
    ------
    KernelError
        The text is cut off, has a later version, or is not PTX. The message contains the line.
    """
    return _Module(_without_comments(text)).entries()


# Group 1 matches the rest of an unterminated comment, which is kept. Without this group, each `/*` costs a long search.
_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*(?:.*?\*/|(.*))', re.DOTALL)


def _without_comments(text: str) -> str:
    """Replace comments by spaces, so that line numbers do not change."""

    def without(match: re.Match[str]) -> str:
        stays = match[0].startswith('"') or match[1] is not None
        return match[0] if stays else re.sub(r"[^\n]", " ", match[0])

    return _COMMENT.sub(without, text)


#: Pattern of a declaration in shared or local memory: alignment, vector length, type, name and number of elements.
_STORED = re.compile(
    r"(?:\.align\s+(?P<align>\d+)\s+)?(?:\.v(?P<vector>[248])\s+)?\.(?P<type>\w+)\s+(?P<name>[%$\w]+)\s*"
    r"(?:\[(?P<count>\w*)\])?\s*;?$"
)
#: Text that the parser skips: spaces, and lines that begin with .version, .target, .address_size or .file.
_BLANK = re.compile(r"(?:\s+|\.(?:version|target|address_size|file)\b[^\n]*)+")


class _Module:
    """Parser of a PTX module."""

    def __init__(self, text: str) -> None:
        self.text = text
        version, target = (re.search(rf"^\s*\.{word}\s+(.*)$", text, re.MULTILINE) for word in ("version", "target"))
        if not version or not target:
            raise KernelError("the text is not PTX: .version or .target is missing")
        if long := re.search(rf"\d{{{_MOST_DIGITS}}}", text):
            raise self.refuse(long.start(), "a number has too many digits")
        numbers = re.match(r"(\d+)\.(\d+)", version[1])
        if not numbers:
            raise self.refuse(version.start(1), f"'{version[1].strip()[:60]}' is not a PTX version")
        if (int(numbers[1]), int(numbers[2])) > _LATEST_VERSION:
            latest = ".".join(map(str, _LATEST_VERSION))
            raise KernelError(f"line {self.line(version.start(1))}: PTX {version[1].strip()} is later than {latest}, "
                              "the latest supported version")  # fmt: skip
        self.target = target[1].split(",")[0].strip()
        #: Declarations of shared variables that were read so far, each with its position in the text of the module.
        self.shared: list[tuple[int, str]] = []
        #: Initial content of each variable in global and constant memory.
        self.variables: dict[str, bytes] = {}

    def line(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def refuse(self, place: int, message: str) -> KernelError:
        return KernelError(f"line {self.line(place)}: {message}")

    def closing(self, place: int) -> int:
        """Return the index of the closing bracket for the opening bracket at index `place`."""
        depth = 0
        for match in re.compile(r'"[^"]*"|[{}()]').finditer(self.text, place):
            depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(match[0], 0)
            if not depth:
                return match.start()
        raise self.refuse(place, "an opening bracket has no closing bracket")

    def entries(self) -> dict[str, Kernel]:
        found: dict[str, Kernel] = {}
        place = 0
        statement = re.compile(r"[^;{]*[;{]", re.DOTALL)
        starts = re.compile(r"\.entry\s+([%$\w]+)\s*(\(?)")
        while match := statement.match(self.text, place := self.after_blanks(place)):
            text, end = match[0], match.end()
            if entry := starts.search(text):
                begin = self.text.find("{", place)
                if begin < 0:
                    raise self.refuse(place, f"the text ends before the body of '{entry[1]}'")
                stop = self.closing(begin)
                head = self.text[place + entry.end() - len(entry[2]) : begin]
                kernel = self.kernel(entry[1], head, begin)
                if kernel.name in found:
                    raise self.refuse(begin, f"a second kernel has the name '{kernel.name}'")
                found[kernel.name] = kernel
                place = stop + 1
                continue
            words = re.findall(r"\.(\w+)", text)
            variable = VARIABLE.search(text)
            if variable and "func" not in words:
                stop = end if text.endswith(";") else self.closing(end - 1) + 1
                place = self.variable(place + variable.start(), stop)
                continue
            if text.endswith("{"):
                if "section" not in words and "func" not in words and "=" not in text:
                    raise self.refuse(end - 1, f"'{text.strip()[:60]}' is not a known statement of a module")
                place = self.closing(end - 1) + 1  # a semicolon follows the initial values of a variable
                continue
            if "shared" in words:
                self.shared.append((place, text))
            place = end
        if place < len(self.text):
            raise self.refuse(place, "the text ends before a ';' or '{' of this statement")
        if not found:
            raise KernelError("the module has no .entry")
        return found

    def after_blanks(self, place: int) -> int:
        match = _BLANK.match(self.text, place)
        return match.end() if match else place

    def variable(self, place: int, end: int) -> int:
        """Read the declaration of a global or constant variable, and return the index of the text after it."""
        end = self.text.find(";", end - 1) + 1 or len(self.text)
        text = " ".join(self.text[place:end].split())
        declared = DECLARED.fullmatch(text)
        if not declared:
            raise self.refuse(place, f"'{text[:60]}' is not a declaration")
        if ".extern" in text:
            return end  # any instruction that uses an .extern variable is reported as not modelled
        try:
            self.variables[declared["name"]] = initial_content(declared)
        except KernelError as error:
            raise self.refuse(place, str(error)) from None
        return end

    def kernel(self, name: str, head: str, begin: int) -> Kernel:
        kernel = Kernel(name, self.target, variables=self.variables)
        depth_end = 0
        if head.startswith("("):
            depth_end = head.rindex(")") + 1 if ")" in head else 0
            try:
                _parameters(kernel, head[1 : depth_end - 1])
            except KernelError as error:
                raise self.refuse(begin - len(head), str(error)) from None
        directives = head[depth_end:]
        for word, attribute in (("reqntid", "block"), ("reqnctapercluster", "cluster")):
            if demand := re.search(rf"\.{word}\s+(\d+(?:\s*,\s*\d+)*)", directives):
                setattr(kernel, attribute, tuple(map(int, demand[1].split(","))))
        _Body(self, kernel, begin + 1).read()
        return kernel


def _parameters(kernel: Kernel, text: str) -> None:
    offset = 0
    for part in split(text):
        match = re.fullmatch(r"\.param\s+(.*?)\s*([%$\w]+)\s*(?:\[(\d+)\])?", part.strip(), re.DOTALL)
        types = re.findall(r"\.([busf]\d+)\b", match[1]) if match else ()
        if not match or not types or re.search(r"\.v[248]\b", match[1]):
            raise KernelError(f"'{part.strip()[:60]}' is not a parameter")
        alignment = re.search(r"\.align\s+(\d+)", match[1]) if match[3] else None
        unit = size_of(types[0])
        size, step = unit * int(match[3] or 1), max(int(alignment[1]), 1) if alignment else unit
        offset = -(-offset // step) * step
        check_size("param", offset + size)
        kernel.parameters.append(Parameter(match[2], types[0], size, offset))
        offset += size


_SPACES = re.compile(r"\s+")
_LABEL = re.compile(r"([%$\w]+)\s*:(?!:)")
_DIRECTIVE = re.compile(r"\.(\w+)")
_GUARD = re.compile(r"@\s*(!?)\s*([%$\w]+)\s*")
_OPCODE = re.compile(r"[a-z][\w.:]*(?:\s+\.[\w.:]+)*")


class _Body:
    """Parser of a kernel's body. Names that an inner block (such as inline assembly) declares get a suffix."""

    def __init__(self, module: _Module, kernel: Kernel, place: int) -> None:
        self.module, self.kernel, self.place = module, kernel, place
        #: Alignment of each variable in dynamic shared memory, which begins after the static variables.
        self.dynamic: dict[str, int] = {}
        #: Bytes of the variables declared so far, by state space.
        self.ends = {"shared": 0, "local": 0}
        #: Number of code blocks (text in braces) that have begun, and the numbers of those blocks that have not ended.
        self.blocks, self.open = 0, [0]
        for start, text in module.shared:
            try:
                self.declare("shared", text)
            except KernelError as error:
                raise module.refuse(start, str(error)) from None
        #: Operand of each register name, by scope. A register of 128 bits is a vector of two registers of 64 bits.
        self.names: list[dict[str, Register | Vector]] = [{}]
        self.labels: list[dict[str, str]] = [{}]
        self.branches: list[tuple[int, list[dict[str, str]]]] = []
        #: Labels and scopes of each list ``.branchtargets``, by the unique name of the label before the list.
        self.targets: dict[str, tuple[list[str], list[dict[str, str]]]] = {}

    def declare(self, space: str, text: str) -> None:
        """Allocate a declared variable after earlier variables of its state space. A dynamic variable has size 0."""
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
        if not size:
            self.dynamic[name] = alignment
            return
        start = -(-self.ends[space] // alignment) * alignment
        (self.kernel.shared if space == "shared" else self.kernel.local)[name] = (start, size)
        self.ends[space] = start + size

    def find(self, name: str) -> Register | Vector | None:
        return next((names[name] for names in reversed(self.names) if name in names), None)

    def read(self) -> None:
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
                self.names.append({})
                self.labels.append({})
                self.place += 1
            elif char == "}":
                self.open.pop()
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
                    raise KernelError(f"line {line}: {error}") from None
        for variable, alignment in self.dynamic.items():
            self.kernel.shared[variable] = (-(-self.ends["shared"] // alignment) * alignment, 0)
        self.resolve()

    def unique(self, name: str) -> str:
        return name if len(self.names) == 1 else f"{name}@{self.open[-1]}"

    def statement(self, line: int) -> None:
        text = self.module.text
        directive = _DIRECTIVE.match(text, self.place)
        if directive and directive[1] in ("loc", "file"):
            self.place = text.find("\n", self.place) if "\n" in text[self.place :] else len(text)
            return
        end = text.find(";", self.place)
        if end < 0:
            raise KernelError("the text ends before the ';' of this statement")
        statement = text[self.place : end].strip()
        self.place = end + 1
        if directive:
            self.directive(directive[1], statement)
        elif statement:
            self.instruction(statement, line)

    def directive(self, word: str, statement: str) -> None:
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
        elif word == "param":
            declared = _STORED.search(statement)
            if not declared or declared["name"] in {parameter.name for parameter in self.kernel.parameters}:
                raise KernelError(f"'{statement[:60]}' is not a declaration of a new name")
            self.kernel.call_parameters.add(declared["name"])
        elif word == "branchtargets" and self.labels[-1]:
            names = split(statement.removeprefix(".branchtargets"))
            self.targets[[*self.labels[-1].values()][-1]] = names, list(self.labels)
        elif word in ("shared", "local"):
            self.declare(word, statement)
            check_size(word, self.ends[word])
        elif word not in _IGNORED:
            raise KernelError(f"the directive '.{word}' is not modelled inside a kernel")

    def instruction(self, statement: str, line: int) -> None:
        guard: Operand | None = None
        if match := _GUARD.match(statement):
            guard = self.find(match[2])
            if guard is None:
                raise KernelError(f"'{match[2]}' is not a register")
            guard = Negated(guard) if match[1] else guard
            statement = statement[match.end() :]
        opcode = _OPCODE.match(statement)
        if not opcode:
            raise KernelError(f"'{statement[:60]}' is not an instruction")
        name = "".join(opcode[0].split())
        arguments = split(statement[opcode.end() :])
        if name.split(".")[0] == "call":  # the order is (results), name of the function, (parameters)
            result = arguments[0] if arguments and arguments[0].startswith("(") else ""
            self.kernel.call_results.update(re.findall(r"[%$\w]+", result))
            arguments = [part for part in arguments if not part.startswith("(")]
        operands = tuple(parse_operand(part, self.find) for part in arguments)
        if name.split(".")[0] in ("bra", "brx"):
            self.branches.append((len(self.kernel.instructions), list(self.labels)))
        self.kernel.instructions.append(Instruction(name, operands, guard, line))

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
