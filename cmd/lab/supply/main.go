// Command supply says what the program headway is made of, and whether something of it is known to be vulnerable.
//
// Usage, from the root of the repository:
//
//	go run ./cmd/lab/supply sbom BINARY FILE   write a bill of materials in CycloneDX' JSON
//	go run ./cmd/lab/supply audit BINARY       ask the databases of vulnerabilities
//
// The audit ends with 1 where something is vulnerable, and with 3 where a database could not be asked.
// A part that was not checked never passes.
package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
)

const (
	exitFound      = 1
	exitUsage      = 2
	exitNotChecked = 3
)

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 3 && arguments[0] == "sbom":
		if err := writeBill(arguments[1], arguments[2]); err != nil {
			fmt.Fprintln(os.Stderr, "supply:", err)
			os.Exit(exitFound)
		}
	case len(arguments) == 2 && arguments[0] == "audit":
		results := audit(context.Background(), run, arguments[1])
		for _, r := range results {
			fmt.Println(r)
		}
		os.Exit(worst(results))
	default:
		fmt.Fprintln(os.Stderr, "supply: use sbom BINARY FILE or audit BINARY")
		os.Exit(exitUsage)
	}
}

// writeBill writes the bill of materials of a binary into a file.
func writeBill(binary, file string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	document, err := bill(info, text)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := encode(out, document); err != nil {
		_ = out.Close()
		return err
	}
	fmt.Printf("%s: %d components of %s\n", file, len(*document.Components), binary)
	return out.Close()
}
