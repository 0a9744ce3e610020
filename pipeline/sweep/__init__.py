"""Many runs that differ in a few keys, at equal data and budget, started by a launcher of Hydra's."""
