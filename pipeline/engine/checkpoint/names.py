"""Names in a checkpoint, without torch."""

STATE = "state.json"
WEIGHTS, RESUME = "shard", "resume"  # begin the names of files: what decoding reads, and what only training reads
RESUME_SHARDS = "resume_shards"  # the key in the state of the files that only training reads
