"""Templates of pages of HTML: what they show is escaped, and a name that is missing an error."""

import jinja2


def html_templates(*packages: str) -> jinja2.Environment:
    """The templates of some packages."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each, "") for each in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
