"""`autotopk report`: a tuning database, a winners file or a bundle as one page of HTML."""
