"""Operations on a ledger and its graphs, one module each; the commands are thin over them."""
