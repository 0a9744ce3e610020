"""Where the files of a corpus come from: a directory, a URL, an archive, a hub of data sets, mtdata's index."""
