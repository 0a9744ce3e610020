"""Checkpoints of Hugging Face transformers as finished runs: M2M100, NLLB-200 and NLLB-MoE."""
