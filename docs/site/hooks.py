"""What MkDocs does differently for this site: pages from outside docs/, generated pages, links and anchors.

Everything is decided before MkDocs reads a page. It gets files whose links lead to other files of the site, and checks
them as it checks any.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext

from docs.site.build import write_site
from docs.site.fences import draw_flow
from docs.site.places import make_anchor

_CODE = re.compile(r"(?<=<code>).+?(?=</code></pre>)", re.DOTALL)
_COLOUR = re.compile(r"</?span[^>]*>")


def on_config(config: MkDocsConfig) -> None:
    """Make anchors as GitHub does, draw flow charts without a script, and leave out what only a server needs."""
    config.theme.static_templates -= {"404.html", "sitemap.xml"}
    config["mdx_configs"]["toc"] = {"permalink": True, "slugify": make_anchor}
    config["mdx_configs"]["pymdownx.superfences"] = {
        "custom_fences": [{"name": "mermaid", "class": "flow", "format": draw_flow}]
    }


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the pages of the site in the place of the files of docs/; what is no page stays."""
    for file in list(files):
        is_page = file.src_uri.endswith(".md") and file.inclusion is not InclusionLevel.EXCLUDED
        if is_page or file.src_uri == "sitemap.xml":
            files.remove(file)
    for uri, text in write_site(Path(config.docs_dir).parent).items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Put pages that the navigation does not list into the section of the index of their folder."""
    sections = {
        page.file.src_uri.rpartition("/")[0]: page.parent
        for page in nav.pages
        if page.file.src_uri.endswith("/index.md") and isinstance(page.parent, Section)
    }
    for file in files.documentation_pages():
        if file.page is not None and file.page.parent is None:
            file.page.parent = sections.get(file.src_uri.rpartition("/")[0])


# The search reads a page tag by tag, and most tags colour code: without these it takes a fifth less to build the site.
@event_priority(100)
def _hide_colours(context: TemplateContext, page: Page, **_: object) -> None:
    content = page.content or ""
    page.meta["coloured"] = _CODE.findall(content)
    page.content = _CODE.sub(lambda code: _COLOUR.sub("", code[0]), content)


@event_priority(-100)
def _show_colours(context: TemplateContext, page: Page, **_: object) -> None:
    coloured = iter(page.meta.pop("coloured"))
    page.content = _CODE.sub(lambda _: next(coloured), page.content or "")


on_page_context = CombinedEvent(_hide_colours, _show_colours)
