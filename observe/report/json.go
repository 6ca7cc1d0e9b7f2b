package report

import (
	"encoding/json"
	"io"
)

// JSON writes one indented JSON document, the form every --json takes.
func JSON(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}
