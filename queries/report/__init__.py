"""An incident as a document: one page of HTML that needs nothing else, or Markdown for a ticket."""
