"""From CUDA C++, generated or by hand, to C++ that a host compiler takes, line for line."""

import re
from collections.abc import Callable
from dataclasses import dataclass

FILE = "kernel.cu"
"""The name that compilers and debuggers know the text by."""

_QUALIFIERS = r"(?:(?:__align__|alignas)\s*\((?P<align>[^()]*)\)\s*)?"
_TYPE = r"(?P<type>(?:[\w:]|<[^<>]*>|\s)+?[\s*]+)"
_EXTERN = re.compile(
    rf"extern\s+__shared__\s+{_QUALIFIERS}{_TYPE}{_QUALIFIERS.replace('align>', 'late>')}(?P<name>\w+)\s*\[\s*\]\s*;"
)
_STATIC = re.compile(rf"(?:static\s+)?__shared__\s+{_QUALIFIERS}{_TYPE}(?P<name>\w+)\s*(?P<sizes>(?:\[[^\]]*\]\s*)*);")
_PART = re.compile(
    r"void\s*\*\s*(?P<name>\w+)\s*=\s*\(\(void\s*\*\)\(\(char\s*\*\)(?P<region>\w+)\s*\+\s*(?P<offset>\d+)\)\)\s*;"
)
_LOCAL = re.compile(r"^(?P<indent>\s+)(?P<array>\w+ \w+\[\d+\];)$", re.MULTILINE)
_ASM = re.compile(r"\b(?:asm|__asm__)\b\s*(?:volatile|__volatile__)?\s*\(")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(include|line)\b.*$", re.MULTILINE)

_ASM_CALLS: list[tuple[str, str]] = [
    (r"griddepcontrol\.wait", "simt_programmatic_sync();"),
    (r"griddepcontrol\.launch_dependents", "simt_programmatic_trigger();"),
    (r"barrier\.cluster\.arrive(\.release)?(\.aligned)?", "simt_cluster_arrive(false, __LINE__);"),
    (r"barrier\.cluster\.arrive\.relaxed(\.aligned)?", "simt_cluster_arrive(true, __LINE__);"),
    (r"barrier\.cluster\.wait(\.acquire)?(\.aligned)?", "simt_cluster_wait(__LINE__);"),
    (r"(bar|barrier)(\.cta)?\.sync(\.aligned)? (\S+), (\S+)", "simt_sync_named({4}, {5}, true, __LINE__);"),
    (r"(bar|barrier)(\.cta)?\.arrive(\.aligned)? (\S+), (\S+)", "simt_sync_named({4}, {5}, false, __LINE__);"),
    (r"max\.NaN\.(f32|f16|bf16)(?:x2)? (%\d), (%\d), (%\d)", "{2} = simt_larger_{1}({3}, {4});"),
    (r"min\.(f32|f16|bf16)(?:x2)? (%\d), (%\d), (%\d)", "{2} = simt_smaller_{1}({3}, {4});"),
    (r"set\.le\.u32\.(f32|f16|bf16)(?:x2)? (%\d), (%\d), (%\d)", "{2} = simt_at_most_{1}({3}, {4});"),
    (r"add\.(f32|f16)(?:x2)? (%\d), (%\d), (%\d)", "{2} = simt_sum_{1}({3}, {4});"),
    (r"fma\.rn\.f32 (%\d), (%\d), (%\d), (%\d)", "{1} = simt_fused_f32({2}, {3}, {4});"),
    (r"fma\.rn\.(bf16)x2 (%\d), (%\d), (%\d), (%\d)", "{2} = simt_fused_{1}({3}, {4}, {5});"),
    (r"rcp\.approx\.ftz\.f32 (%\d), (%\d)", "{1} = 1 / {2};"),
    (r"rsqrt\.approx\.ftz\.f32 (%\d), (%\d)", "{1} = 1 / sqrtf({2});"),
    (r"lg2\.approx\.ftz\.f32 (%\d), (%\d)", "{1} = log2f({2});"),
    (r"ex2\.approx\.ftz\.f32 (%\d), (%\d)", "{1} = exp2f({2});"),
    (r"prmt\.b32 (%\d), (%\d), (%\d), (%\d)", "{1} = simt_permuted({2}, {3}, {4});"),
    (r"", ";"),
    (r"(fence|membar|prefetch|cp\.async\.bulk\.prefetch|createpolicy|discard)\.?.*", ";"),
    (r"\.reg .*mbarrier\.init\.\S+ \[at\], 1", "simt_begin_signal(%0);"),
    (r"\.reg .*mbarrier\.arrive\.expect_tx\.\S+ _, \[at\], %1", "simt_expect(%0, %1);"),
    (r"\.reg .*mbarrier\.try_wait\.parity\.\S+ done, \[at\], 0; @!done bra AGAIN", "simt_wait_for(%0);"),
    (r"\.reg .*st\.async\.\S+ \[at\], %2, \[by\]", "simt_send(%0, %2, %1, %3);"),
    (r"\.reg .*st\.async\.\S+ \[at\], \{%2, %3, %4, %5\}, \[by\]", "simt_send(%0, %2, %3, %4, %5, %1, %6);"),
    (
        r"\.reg .*cp\.async\.bulk\.shared::cluster\.\S+ \[at\], \[here\], %2, \[by\]",
        "simt_send_copy(%0, %1, %2, %3, %4);",
    ),
    (r"mov\.u32 (%\d), %%?laneid", "{1} = simt_lane();"),
    (r"mov\.u32 (%\d), %%?lanemask_lt", "{1} = (1u << simt_lane()) - 1;"),
    (r"mov\.u32 (%\d), %%?cluster_ctarank", "{1} = simt_cluster_rank();"),
    (r"\.reg .*@reads ld\.global\.nc\.L1::no_allocate\.v4\.u32 .*", "if (%5) simt_load_words(%0, %1, %2, %3, %4);"),
    (r"(ld|st)\.\S+ .*", "#error"),
]
"""PTX by pattern, and what stands for it; {n} is a group, in which %n is the operand of that number."""


_ENTRY = 'extern "C" void simt_entry(void* const* slots) {{ simt_call({}, slots); }}\n'


class TranslationError(ValueError):
    """The text has something that the emulator does not know."""


@dataclass(frozen=True)
class Declared:
    """A parameter of the kernel as its text declares it."""

    name: str
    pointer: bool
    const: bool
    bytes: int
    """Size of an integer parameter."""


def parameters(text: str, symbol: str) -> list[Declared]:
    """The parameters of a kernel in its source. Raises TranslationError where there is no such kernel."""
    aliases = re.findall(rf"^#define (\w+) {re.escape(symbol)}$", text, re.MULTILINE)
    names = "|".join(map(re.escape, [symbol, *aliases]))
    found = re.search(rf"__global__[^;{{}}]*?\b(?:{names})\s*\(([^()]*)\)\s*\{{", text)
    if not found:
        raise TranslationError(f"the text defines no kernel {symbol}")
    return [_declared(item) for item in found[1].split(",") if item.strip()]


def _declared(item: str) -> Declared:
    head, name = re.fullmatch(r"\s*(.*?)(\w+)\s*", item, re.DOTALL).groups()  # type: ignore[union-attr]  # has a word
    wide = re.search(r"int64_t|long|size_t", head) is not None
    return Declared(name, "*" in head, re.search(r"\bconst\b", head) is not None, 8 if wide else 4)


def translate(text: str, symbol: str, shared_bytes: int) -> str:
    """C++ with the same lines, for the headers of the emulator.

    Buffers that TileLang places in one dynamic region become buffers of their own, so that leaving one is seen.

    Raises:
        TranslationError: inline assembly that the emulator does not know.
    """
    body = _DIRECTIVE.sub("", text)
    body = _translate_asm(body)
    body = _split(body, shared_bytes)
    body = _EXTERN.sub(_keeping_lines(_extern_call), body)
    body = _STATIC.sub(_keeping_lines(_static_call), body)
    body = _LOCAL.sub(r"\g<indent>alignas(16) \g<array>", body)  # as if in registers: accessed by vectors of any width
    return f'#include "device/tilelang.h"\n#line 1 "{FILE}"\n{body}\n{_ENTRY.format(symbol)}'


def _split(text: str, shared_bytes: int) -> str:
    """Make a buffer of its own of each part of a dynamic region that is named, unless parts may overlap."""
    parts = list(_PART.finditer(text))
    starts = sorted({int(part["offset"]) for part in parts})
    regions = {part["region"] for part in parts}
    if len(starts) != len(parts) or len(regions) != 1:
        return text
    region = regions.pop()
    if len(re.findall(rf"\b{region}\b", text)) != len(parts) + 1:  # used in other ways too
        return text

    def call(part: re.Match[str]) -> str:
        start = int(part["offset"])
        end = min((other for other in starts if other > start), default=shared_bytes)
        return f'void* {part["name"]} = simt_shared_part("{part["name"]}", {start}, {end - start});'

    return _EXTERN.sub("", _PART.sub(_keeping_lines(call), text))


def _keeping_lines(replace: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    return lambda match: replace(match) + "\n" * match[0].count("\n")


def _extern_call(match: re.Match[str]) -> str:
    element = match["type"].strip()
    return f'{element}* {match["name"]} = ({element}*)simt_shared_dynamic("{match["name"]}");'


def _static_call(match: re.Match[str]) -> str:
    name, array = match["name"], f"{match['type'].strip()} {match['sizes']}".strip()
    align = match["align"] or f"alignof(simt_{name})"
    return (
        f"typedef {match['type'].strip()} simt_{name}{match['sizes']}; static char simt_key_{name}; "
        f"simt_{name}& {name} = *(simt_{name}*)simt_shared_static("
        f'"{name}", &simt_key_{name}, sizeof({array}), {align});'
    )


def _translate_asm(text: str) -> str:
    output, at = [], 0
    while match := _ASM.search(text, at):
        end = _closing(text, match.end())
        statement = text[match.start() : end]
        output += [text[at : match.start()], _asm_call(text[match.end() : end - 1]), "\n" * statement.count("\n")]
        at = end + (text[end : end + 1] == ";")
    return "".join([*output, text[at:]])


def _closing(text: str, start: int) -> int:
    """Just after the parenthesis that closes the one before `start`; strings may hold others."""
    depth, at = 1, start
    while depth:
        token = re.compile(r'"(?:\\.|[^"\\])*"|[()]').search(text, at)
        if not token:
            raise TranslationError("an asm statement does not end")
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        at = token.end()
    return at


def _asm_call(inside: str) -> str:
    template, *_ = re.split(r":(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", inside, maxsplit=1)
    code = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', template)).replace(r"\n", " ").replace(r"\t", " ")
    code = " ".join(code.strip().strip("{}").strip().rstrip(";").split())
    operands = _operands(inside[len(template) :])
    for pattern, call in _ASM_CALLS:
        if found := re.fullmatch(pattern, code):
            if call == "#error":
                break
            filled = re.sub(r"\{(\d)\}", lambda group: found[int(group[1])] or "", call)
            return re.sub(r"%(\d)", lambda number: f"({operands[int(number[1])]})", filled)
    raise TranslationError(f"the emulator does not know the assembly {code!r}")


def _operands(constraints: str) -> list[str]:
    """The expressions of "=r"(x) : "r"(y), in order."""
    found, at = [], 0
    while match := re.compile(r'"[^"]*"\s*\(').search(constraints, at):
        at = _closing(constraints, match.end())
        found.append(constraints[match.end() : at - 1])
    return found
