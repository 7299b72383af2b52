"""Reports: a study's results on one self-contained page, which states what is identified and what is not."""
