"""One Transformer layer cut over two processes, in the ways that there are."""
