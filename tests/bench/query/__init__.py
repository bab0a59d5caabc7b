"""`make bench-query`: how long queries take, beside a bare search by hand."""
