package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/headway-rl/headway/observe/steps"
)

// current compares a generated page with its file; HEADWAY_REWRITE=1 writes it.
func current(t *testing.T, path, page string) {
	t.Helper()
	if os.Getenv("HEADWAY_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != page {
		t.Errorf("%s is not what the program says (%v): HEADWAY_REWRITE=1 go test ./cmd/headway -run Reference", path, err)
	}
}

// TestCommandReference prints every command with its flags, as --help has them.
func TestCommandReference(t *testing.T) {
	model, err := cli.Parser(&commands{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString("# Every command\n\n" +
		"Generated from the program (`make generate`). Results go to standard output, as one JSON document with `--json`; progress and messages to standard error. " +
		"With `--json` an error before the result is that document: `{\"error\": {\"code\", \"exit_code\", \"message\", \"hint\", \"faults\": [{\"file\", \"line\", \"column\", \"key\", \"value\", \"problem\", \"allowed\", \"nearest\"}]}}`, " +
		"its code `usage` (exit code 2) or `failure`. " +
		"Exit codes: 0 done; 1 the run or the check failed; 2 bad arguments or a bad document. `NO_COLOR` and a `TERM` of dumb are respected. " +
		"For programs that start a command: with `HEADWAY_UNTIL_EOF=1` it ends as by SIGTERM when its standard input ends, and `HEADWAY_PROGRESS_EVERY=500ms` says how often it prints a line of progress. " +
		"[outputs.schema.json](outputs.schema.json) describes the documents of `--json`.\n\n")
	for _, command := range offered(model.Model.Node) {
		fmt.Fprintf(&page, "- [`headway %s`](#headway-%s): %s\n", command.Name, command.Name, command.Help)
	}
	for _, command := range offered(model.Model.Node) {
		commandPage(&page, "headway "+command.Name, command)
	}
	current(t, "../../docs/reference/commands.md", page.String())
}

func commandPage(page *strings.Builder, name string, command *kong.Node) {
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n", name, command.Help)
	fmt.Fprintf(page, "```sh\n%s\n```\n", strings.TrimSpace("headway "+strings.TrimPrefix(command.Summary(), "headway ")))
	var rows strings.Builder
	for _, argument := range command.Positional {
		fmt.Fprintf(&rows, "| `%s` | %s |\n", argument.Name, tableCell(argument.Help))
	}
	for _, flags := range command.AllFlags(true) {
		for _, flag := range flags {
			if flag.Name == "help" {
				continue
			}
			fmt.Fprintf(&rows, "| `%s` | %s |\n", tableCell(strings.TrimSpace(flag.String())), tableCell(flag.Help))
		}
	}
	if rows.Len() > 0 {
		fmt.Fprintf(page, "\n| | |\n|---|---|\n%s", rows.String())
	}
	for _, child := range command.Children {
		if child.Type == kong.CommandNode {
			commandPage(page, name+" "+child.Name, child)
		}
	}
}

func tableCell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", ">", "&gt;").Replace(text)
}

// TestMetricsReference lists what metrics.jsonl has of every train step, with the comments of its fields.
func TestMetricsReference(t *testing.T) {
	comments := map[string]string{}
	files, err := filepath.Glob("../../observe/steps/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		maps.Copy(comments, fieldComments(t, file))
	}
	var page strings.Builder
	page.WriteString("# metrics.jsonl\n\n" +
		"Generated from the struct that is written (`make generate`): one JSON object a train step, in the run directory. Ratios are from 0 to 1, staleness counts policy versions, " +
		"and every figure is of the step's groups or of the period that it ended. What Prometheus gets is in [prometheus](prometheus.md).\n\n| key | meaning |\n|---|---|\n")
	metricRows(t, &page, "", reflect.TypeFor[steps.Line](), comments)
	current(t, "../../docs/reference/metrics.md", page.String())
}

func metricRows(t *testing.T, page *strings.Builder, prefix string, of reflect.Type, comments map[string]string) {
	for i := range of.NumField() {
		field := of.Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		comment := comments[of.Name()+"."+field.Name]
		if comment == "" {
			t.Errorf("%s.%s has no comment: the reference prints it", of.Name(), field.Name)
		}
		fmt.Fprintf(page, "| `%s` | %s |\n", prefix+key, tableCell(comment))
		if kind := field.Type; kind.Kind() == reflect.Pointer && kind.Elem().Kind() == reflect.Struct {
			metricRows(t, page, prefix+key+".", kind.Elem(), comments)
		}
		if kind := field.Type; kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct {
			metricRows(t, page, prefix+key+"[].", kind.Elem(), comments)
		}
	}
}

// fieldComments are the comments of the fields of every struct in a file, by TYPE.FIELD; a field without
// one of its own has that of those it stands with.
func fieldComments(t *testing.T, path string) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.TypeSpec)
		if !is {
			return true
		}
		if fields, is := spec.Type.(*ast.StructType); is {
			for _, field := range fields.Fields.List {
				text := strings.TrimSpace(field.Doc.Text() + field.Comment.Text())
				for _, name := range field.Names {
					out[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(text), " ")
				}
			}
		}
		return true
	})
	return out
}
