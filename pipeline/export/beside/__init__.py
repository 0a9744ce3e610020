"""Code that is shipped beside exported weights, where transformers loads it with trust_remote_code=True."""
