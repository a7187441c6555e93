"""The rule by which a router chooses experts from a row of logits and weighs them."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

Scoring = Literal["softmax", "sigmoid", "sqrtsoftplus"]
"""What makes a score of a logit x: softmax over the row, 1 / (1 + exp(-x)), or the root of log(1 + exp(x))."""

SCORINGS: tuple[Scoring, ...] = get_args(Scoring)

LOGITS = ("float32", "float16", "bfloat16")
"""Dtypes of logits."""

_TEXT = re.compile(r"(?P<scoring>\w+)(?P<bias>\+bias)?(:(?P<kept>\d{1,9})of(?P<groups>\d{1,9}))?(?P<raw>:raw)?")


@dataclass(frozen=True, slots=True)
class Routing:
    """What decides the experts of a row and their weights, but for k, the bias and the scale themselves."""

    scoring: Scoring = "softmax"
    biased: bool = False
    """A bias is added to the scores for the choice, not for the weights."""
    renormalize: bool = True
    """Weights of a row are divided by their sum."""
    n_group: int = 1
    """Experts are in so many groups of equal size, adjacent ones together."""
    topk_group: int = 1
    """So many groups stay: those of the best expert or, where there is a bias, of the best two by their sum."""

    def __post_init__(self) -> None:
        if self.scoring not in SCORINGS:
            raise ValueError(f"scoring={self.scoring!r} is not one of {', '.join(SCORINGS)}")
        for name in ("biased", "renormalize"):
            if type(value := getattr(self, name)) is not bool:
                raise ValueError(f"{name}={value!r} is not True or False")
        for name in ("n_group", "topk_group"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name}={value!r} is not a positive integer")
        if self.topk_group > self.n_group:
            raise ValueError(f"topk_group={self.topk_group} is more than n_group={self.n_group}")

    def __str__(self) -> str:
        """As `parse` reads it: softmax, sigmoid+bias:4of8, softmax:raw."""
        bias = "+bias" if self.biased else ""
        groups = f":{self.topk_group}of{self.n_group}" if self.n_group > 1 else ""
        return f"{self.scoring}{bias}{groups}{'' if self.renormalize else ':raw'}"

    @classmethod
    def parse(cls, text: str) -> "Routing":
        """The inverse of `str`. Raises ValueError."""
        found = _TEXT.fullmatch(text)
        if found is None or found["scoring"] not in SCORINGS:
            told = f"{text!r} is not SCORING[+bias][:KEPTofGROUPS][:raw]"
            raise ValueError(f"{told} with SCORING one of {', '.join(SCORINGS)}, as in sigmoid+bias:4of8")
        scoring: Scoring = next(one for one in SCORINGS if one == found["scoring"])
        groups, kept = int(found["groups"] or 1), int(found["kept"] or 1)
        return cls(scoring, found["bias"] is not None, found["raw"] is None, groups, kept)

    @property
    def keeps_all(self) -> bool:
        """Whether no group is left out."""
        return self.topk_group == self.n_group

    def candidates(self, experts: int) -> int:
        """How many of so many experts are in the groups that stay."""
        return experts // self.n_group * self.topk_group

    def check(self, experts: int, k: int) -> None:
        """Raise ValueError where k of so many experts cannot be chosen so."""
        if experts % self.n_group:
            raise ValueError(f"{experts} experts are not in n_group={self.n_group} groups of equal size")
        most = self.candidates(experts)
        if not 1 <= k <= most:
            groups = f", which {self.topk_group} of {self.n_group} groups hold" if self.n_group > 1 else ""
            raise ValueError(f"k={k} is not from 1 to {most}{groups}")
