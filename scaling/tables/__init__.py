"""Tables: a paper's rows counted, trained as a study, and printed next to the published figures."""
