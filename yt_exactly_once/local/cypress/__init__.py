"""Cypress, the tree of the embedded cluster: nodes, attributes, locks and master transactions."""
