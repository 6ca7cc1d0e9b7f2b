// Command world runs the whole system under one seed: production planes, a broker, a trainer, workers, engines and
// receivers in one deterministic world, under faults. It builds the world's program and runs it, a process a seed.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/overlay"
)

func main() {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		panic(err)
	}
	dir := os.Args[1]
	path, err := overlay.Write(dir, strings.TrimSpace(string(goroot)), nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	cmd := exec.Command("go", "build", "-tags", "faketime", "-overlay", path, "-o", dir+"/world", "./cmd/lab/world/guest")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if cmd.Run() != nil {
		os.Exit(1)
	}
}
