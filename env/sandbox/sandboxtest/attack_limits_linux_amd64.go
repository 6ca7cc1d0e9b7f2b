package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// The attacks on limits print how far they got; the judge on the host compares that with the limit.

func progress(n int64) { fmt.Printf("progress: %d\n", n) }

func number(arg string) int64 {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// takeMemory touches memory until it has as much as it was told.
func takeMemory(args []string) {
	const step = 8 << 20
	for taken := int64(0); taken < number(args[0]); taken += step {
		block, err := syscall.Mmap(-1, 0, step, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			held("mmap: %v", err)
			return
		}
		for i := 0; i < step; i += 4096 {
			block[i] = 1
		}
		progress(taken + step)
	}
}

const sysMemfdCreate = 319

// takeMemoryFiles fills files that are memory: of no name, and in System V's segments.
func takeMemoryFiles(args []string) {
	most := number(args[0])
	block := make([]byte, 8<<20)
	taken := int64(0)
	for taken < most {
		segment, err := call(syscall.SYS_SHMGET, 0, uintptr(len(block)), 0o1000|0o600)
		if err != nil {
			held("shmget: %v", err)
			break
		}
		address, err := call(syscall.SYS_SHMAT, segment, 0, 0)
		if err != nil {
			held("shmat: %v", err)
			break
		}
		fillShared(address, len(block))
		taken += int64(len(block))
		progress(taken)
	}
	fd, err := call(sysMemfdCreate, text("bomb"), 0)
	if err != nil {
		held("memfd_create: %v", err)
		return
	}
	for taken < most {
		if _, err := syscall.Write(int(fd), block); err != nil {
			held("write to memory: %v", err)
			return
		}
		taken += int64(len(block))
		progress(taken)
	}
}

// places are where something might be written.
func places() []string {
	return []string{"/work", "/tmp", "/dev/shm", "/var/tmp", "/run", "/var/run", "/dev", "/dev/mqueue", "/home", "/root", "/", "/etc", "/var", "/usr", "/opt", "/mnt", "/srv",
		"/proc", "/sys", "/sys/fs/cgroup", armsDir}
}

// makeFiles makes as many files as it was told, wherever it can.
func makeFiles(args []string) {
	made, writable := int64(0), 0
	for _, dir := range places() {
		dir = filepath.Join(dir, "headway-attack-files")
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		writable++
		for made < number(args[0]) {
			file, err := os.Create(filepath.Join(dir, strconv.FormatInt(made, 10)))
			if err != nil {
				break
			}
			file.Close()
			if made++; made%100 == 0 {
				progress(made)
			}
		}
	}
	progress(made)
	held("%d files in %d places", made, writable)
}

// fillDisk writes as much as it was told, wherever it can.
func fillDisk(args []string) {
	block := make([]byte, 1<<20)
	written, writable := int64(0), 0
	for _, dir := range places() {
		file, err := os.Create(filepath.Join(dir, "headway-attack-disk"))
		if err != nil {
			continue
		}
		writable++
		for written < number(args[0]) {
			n, err := file.Write(block)
			if written += int64(n); err != nil {
				if !errors.Is(err, syscall.ENOSPC) {
					held("%s: %v", dir, err)
				}
				break
			}
			progress(written)
		}
		file.Close()
	}
	progress(written)
	held("%d MiB in %d places", written>>20, writable)
}
