package config

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const referenceFile = "../docs/reference/config.md"

// TestSchemaReferenceIsCurrent prints the schema for people; with -rewrite it writes the file.
func TestSchemaReferenceIsCurrent(t *testing.T) {
	var schema yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(schemaText(t), &schema, yaml.UseOrderedMap()); err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString("# Every key of a document\n\n" +
		"Generated from the structs of package `config` (`make generate`); [headway.schema.json](../../config/headway.schema.json) is the same for editors. " +
		"A file names what differs from the defaults; `headway config FILE` prints it resolved, `headway config` every default. Unknown keys are errors.\n")
	sections(&page, "", at(schema, "properties").(yaml.MapSlice))
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(referenceFile, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(referenceFile); err != nil || string(have) != page.String() {
		t.Errorf("%s is not what the structs say (%v): go test ./config -run Schema -rewrite", referenceFile, err)
	}
}

// at is the value of a key, nil where there is none.
func at(m yaml.MapSlice, key string) any {
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

// inside are the properties of a section, or of the elements of a list of sections.
func inside(property yaml.MapSlice) yaml.MapSlice {
	if items, is := at(property, "items").(yaml.MapSlice); is {
		property = items
	}
	inner, _ := at(property, "properties").(yaml.MapSlice)
	return inner
}

// sections prints the scalars of a section as a table, and then every section in it.
func sections(page *strings.Builder, path string, properties yaml.MapSlice) {
	table := false
	for _, item := range properties {
		key, property := item.Key.(string), item.Value.(yaml.MapSlice)
		if inside(property) != nil {
			continue
		}
		if !table {
			page.WriteString("\n| key | value | default | meaning |\n|---|---|---|---|\n")
			table = true
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", path+key, allowedText(property), defaultText(property), cell(at(property, "description")))
	}
	for _, item := range properties {
		key, property := item.Key.(string), item.Value.(yaml.MapSlice)
		inner := inside(property)
		if inner == nil {
			continue
		}
		list := ""
		if at(property, "type") == "array" {
			list = "[]"
		}
		fmt.Fprintf(page, "\n## %s\n\n%s\n", path+key+list, at(property, "description"))
		sections(page, path+key+list+".", inner)
	}
}

func cell(text any) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(fmt.Sprint(text))
}

// allowedText say what a key may be.
func allowedText(property yaml.MapSlice) string {
	if items, is := at(property, "items").(yaml.MapSlice); is {
		return "list of: " + allowedText(items)
	}
	if words, is := at(property, "enum").([]any); is {
		texts := make([]string, len(words))
		for i, word := range words {
			texts[i] = fmt.Sprintf("`%v`", word)
		}
		return strings.Join(texts, " ")
	}
	text := fmt.Sprint(at(property, "type"))
	for _, end := range [][2]string{{"minimum", "≥"}, {"exclusiveMinimum", ">"}, {"maximum", "≤"}, {"exclusiveMaximum", "<"}} {
		if bound := at(property, end[0]); bound != nil {
			text += fmt.Sprintf(" %s %v", end[1], bound)
		}
	}
	return text
}

func defaultText(property yaml.MapSlice) string {
	value := at(property, "default")
	if value == nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return "`" + strings.Trim(string(text), `"`) + "`"
}
