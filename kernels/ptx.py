"""Parser of PTX text: a kernel's instructions with operands, registers, labels, parameters and shared variables.

Source: PTX ISA, "Syntax", "State Spaces, Types, and Variables" and "Directives". Names are resolved by their scope.
Instructions have their line number, for messages.
"""

import re
from functools import lru_cache

from ..errors import KernelError
from .program import Kernel, Parameter, size_of
from .ptx_body import Body, Function
from .ptx_operands import split
from .ptx_variables import DECLARED, VARIABLE, check_size, initial_content

__all__ = ["parse_ptx"]

#: Latest version of PTX that the parser accepts.
_LATEST_VERSION = (9, 5)
#: Maximum number of decimal digits in a number.
_MOST_DIGITS = 60


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


#: Text that the parser skips: spaces, and lines that begin with .version, .target, .address_size or .file.
_BLANK = re.compile(r"(?:\s+|\.(?:version|target|address_size|file)\b[^\n]*)+")


#: Pattern of the head of a function: results, name and parameters.
_FUNCTION = re.compile(r"\.func\s*(?:\((?P<results>[^)]*)\))?\s*(?P<name>[%$\w]+)\s*(?:\((?P<parameters>[^)]*)\))?")
_PARAMETER_NAME = re.compile(r"([%$\w]+)\s*(?:\[\d+\])?$")


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
        self.functions: dict[str, Function] = {}
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
        """Return the kernels by name. Their bodies are read last, since a function may follow its callers."""
        found: dict[str, tuple[str, int]] = {}
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
                if entry[1] in found:
                    raise self.refuse(begin, f"a second kernel has the name '{entry[1]}'")
                found[entry[1]] = self.text[place + entry.end() - len(entry[2]) : begin], begin
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
                if function := _FUNCTION.search(text):
                    declared = [*split(function["results"] or ""), *split(function["parameters"] or "")]
                    names = tuple(name[1] for part in declared if (name := _PARAMETER_NAME.search(part)))
                    self.functions[function["name"]] = Function(function["name"], names, end)
                place = self.closing(end - 1) + 1  # a semicolon follows the initial values of a variable
                continue
            if "shared" in words:
                self.shared.append((place, text))
            place = end
        if place < len(self.text):
            raise self.refuse(place, "the text ends before a ';' or '{' of this statement")
        if not found:
            raise KernelError("the module has no .entry")
        return {name: self.kernel(name, head, begin) for name, (head, begin) in found.items()}

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
        Body(self, kernel, begin + 1).read()
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
