"""Text by transformers' `generate`, whose sampler calls torch.topk: ours under `patch()`, with the same text."""

import torch
from beside import DEVICE, REAL, compare
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import autotopk

VOCABULARY, TOKENS = (128_256, 32) if REAL else (512, 4)


def small_model() -> LlamaForCausalLM:
    """A Llama of two layers with random weights; nothing is downloaded."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).to(DEVICE).eval()


def main() -> None:
    """Generate twice from one seed."""
    model = small_model()
    prompt = torch.arange(1, 9, device=DEVICE).expand(4, -1)  # (sequences, tokens)

    def text() -> Tensor:
        torch.manual_seed(1)
        made: Tensor = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=True, top_k=50, max_new_tokens=TOKENS
        )
        return made

    def patched() -> Tensor:
        with autotopk.patch():
            return text()

    assert torch.equal(patched(), text())
    print(f"{len(prompt)} x {TOKENS} sampled tokens of {VOCABULARY}: the same with autotopk.patch()")
    compare("generate", patched, text)


if __name__ == "__main__":
    main()
