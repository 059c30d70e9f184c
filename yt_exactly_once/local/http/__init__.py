"""The HTTP front of a proxy: routes, parameters, content codings, answers and the admin pages."""
