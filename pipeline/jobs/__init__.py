"""The life of a job's processes: launch them here or on other hosts, meet, watch each other, stop, report errors."""
