"""Whether times tell one party what another one sent (protocol of Gu et al., arXiv 2502.07776)."""
