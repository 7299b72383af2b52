"""Tables: a paper's rows counted, trained as a study, and printed beside what the paper printed."""
