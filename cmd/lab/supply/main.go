// Command supply says what the program headway is made of, and whether something of it is known to be vulnerable.
//
// Usage, from the root of the repository:
//
//	go run ./cmd/lab/supply sbom BINARY FILE [VERSION]   write a bill of materials in CycloneDX' JSON
//	go run ./cmd/lab/supply audit BINARY                 ask the databases of vulnerabilities
//	go run ./cmd/lab/supply wheels FILE...               check Python wheels, and run those for this machine
//
// The audit ends with 1 where something is vulnerable, and with 3 where a database could not be asked.
// A part that was not checked never passes.
package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime"
	"strings"
)

const (
	exitFound      = 1
	exitUsage      = 2
	exitNotChecked = 3
)

func main() {
	arguments := os.Args[1:]
	switch {
	case (len(arguments) == 3 || len(arguments) == 4) && arguments[0] == "sbom":
		failOn(writeBill(arguments[1], arguments[2], strings.Join(arguments[3:], "")))
	case len(arguments) >= 2 && arguments[0] == "wheels":
		failOn(wheels(context.Background(), run, runtime.GOOS+"/"+runtime.GOARCH, arguments[1:], os.Stdout))
	case len(arguments) == 2 && arguments[0] == "audit":
		results := audit(context.Background(), run, arguments[1])
		for _, r := range results {
			fmt.Println(r)
		}
		os.Exit(worst(results))
	default:
		fmt.Fprintln(os.Stderr, "supply: use sbom BINARY FILE [VERSION], audit BINARY or wheels FILE...")
		os.Exit(exitUsage)
	}
}

// failOn ends the program with an error, if there is one.
func failOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(exitFound)
	}
}

// writeBill writes the bill of materials of a binary into a file. The version "" is the one that the binary has of Go.
func writeBill(binary, file, version string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	document, err := bill(info, text, version)
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
