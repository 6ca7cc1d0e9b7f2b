package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// systemMemory is what the kernel and its control groups let this process have, 0 if they do not say.
func systemMemory() int64 { return memoryUnder("/") }

// memoryUnder reads it below a root, which is the machine's own but in tests.
func memoryUnder(root string) int64 {
	least := memTotal(filepath.Join(root, "proc/meminfo"))
	for _, file := range groupFiles(root) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// memTotal is the line of that name, in bytes; 0 without it.
func memTotal(file string) int64 {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// groupFiles are the files that may hold a limit: of this process' control group and of those above
// it, in both versions of control groups. Inside a container its own group is the root of the mount.
func groupFiles(root string) (files []string) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mount, name := "sys/fs/cgroup", "memory.max"
		if parts[0] != "0" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			mount, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			files = append(files, filepath.Join(root, mount, path, name))
			if path == "/" {
				break
			}
		}
	}
	return files
}
