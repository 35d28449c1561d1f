//go:build !linux

package tfiproxy

import "syscall"

// pipe stands for what only Linux can do.
type pipe struct{ held int }

func takePipe() *pipe { return nil }

func putPipe(*pipe) {}

func (p *pipe) fill(uintptr, int) syscall.Errno { return syscall.EINVAL }

func (p *pipe) drain(uintptr) (int, syscall.Errno) { return 0, syscall.EINVAL }

func hasCome(uintptr) bool { return false }
