"""`make bench BENCH=moe`: one MoE layer against a dense one, against what is possible, and against its peers."""
