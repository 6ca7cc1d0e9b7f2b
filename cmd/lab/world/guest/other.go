//go:build !faketime

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "guest: this program is a world only with the world's overlay: go run ./cmd/lab/world")
	os.Exit(2)
}
