package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"strings"
)

// count is the number of lines that hold code.
func count(language string, text []byte) int {
	switch language {
	case "Go":
		return countGo(text)
	case "Python":
		return countMarked(text, "#", `"""`, `"""`)
	}
	return countMarked(text, "//", "/*", "*/")
}

// countGo counts the lines that a token other than a comment begins on or runs over.
func countGo(text []byte) int {
	files := token.NewFileSet()
	if parsed, err := parser.ParseFile(files, "", text, parser.PackageClauseOnly|parser.ParseComments); err == nil && ast.IsGenerated(parsed) {
		return 0
	}
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	n, last := 0, 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		line := file.Line(pos)
		for i, part := range strings.Split(literal, "\n") { // a raw string runs over lines
			if line+i > last && (i == 0 || strings.TrimSpace(part) != "") {
				n, last = n+1, line+i
			}
		}
	}
}

// countMarked counts the lines that are neither blank nor wholly a comment: one behind mark,
// or one that begins a line with from and ends with to.
func countMarked(text []byte, mark, from, to string) int {
	if bytes.Contains(text[:min(len(text), 200)], []byte("DO NOT EDIT")) {
		return 0
	}
	n, inside := 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case inside:
			inside = !strings.Contains(line, to)
		case line == "" || strings.HasPrefix(line, mark):
		case strings.HasPrefix(line, from):
			inside = !strings.Contains(line[len(from):], to)
		default:
			n++
		}
	}
	return n
}
