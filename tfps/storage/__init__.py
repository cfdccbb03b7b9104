"""Files anywhere, on local disks or gs://, and what may go wrong with them."""
