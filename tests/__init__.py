"""Tests of Recollect; a package so that no other distribution's `tests` can shadow it."""
