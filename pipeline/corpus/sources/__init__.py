"""Sources of the files of a corpus: a directory, a URL, an archive, a hub of data sets, or mtdata's index."""
