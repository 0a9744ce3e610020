"""Finished runs as models of other programs: Hugging Face transformers and CTranslate2."""
