"""Reports: what a study has found, on one page that needs nothing but itself. It says what is known and what is not."""
