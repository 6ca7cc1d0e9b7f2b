package main

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The load commands of Mach-O that debug/macho has no names for.
const (
	loadBuildVersion  = 0x32
	loadCodeSignature = 0x1d
	platformMacOS     = 1
)

// checkFormat says whether the system that each tag names can start a program: its kind of file, its processor, and
// nothing that it needs and that the system may lack.
func checkFormat(program []byte, processor string, tags []string) error {
	mac, err := macho.NewFile(bytes.NewReader(program))
	if err == nil {
		return checkMachO(mac, processor, tags)
	}
	linux, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("the program is neither Mach-O nor ELF: %w", err)
	}
	return checkELF(linux, processor, tags)
}

// checkELF wants a static, stripped program: it runs on any libc, and on the kernels of both tags.
func checkELF(f *elf.File, processor string, tags []string) error {
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[processor]
	name := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[processor]
	if f.Machine != machine {
		return fmt.Errorf("the program is for %s, not for %s", f.Machine, processor)
	}
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("the program is linked dynamically (%s): another libc cannot start it", part.Type)
		}
	}
	if f.Section(".symtab") != nil || f.Section(".debug_info") != nil {
		return errors.New("the program is not stripped")
	}
	return wantTags(tags, "py3-none-manylinux_2_17_"+name, "py3-none-musllinux_1_1_"+name)
}

// checkMachO wants a signed program that demands no newer macOS than the tag promises.
func checkMachO(f *macho.File, processor string, tags []string) error {
	cpu := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[processor]
	name := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[processor]
	if f.Cpu != cpu {
		return fmt.Errorf("the program is for %s, not for %s", f.Cpu, processor)
	}
	var oldest string
	signed := false
	for _, load := range f.Loads {
		raw := load.Raw()
		switch order := binary.LittleEndian; order.Uint32(raw) {
		case loadCodeSignature:
			signed = true
		case loadBuildVersion:
			if order.Uint32(raw[8:]) == platformMacOS {
				version := order.Uint32(raw[12:])
				oldest = fmt.Sprintf("%d_%d", version>>16, version>>8&0xff)
			}
		}
	}
	if processor == "arm64" && !signed {
		return errors.New("the program is not signed: macOS on arm64 starts none that is not, if by itself")
	}
	if f.Section("__debug_info") != nil || f.Section("__zdebug_info") != nil {
		return errors.New("the program is not stripped")
	}
	return wantTags(tags, "py3-none-macosx_"+oldest+"_"+name)
}

func wantTags(tags []string, want ...string) error {
	if !slices.Equal(tags, want) {
		return fmt.Errorf("the file's name has the tags %s, the program is for %s", strings.Join(tags, " "), strings.Join(want, " "))
	}
	return nil
}
