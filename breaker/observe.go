package breaker

import "time"

// Observe registers f to be called with every change that is delivered from now
// on, and the time at which it happened. (Change.At counts from the first input of
// the breaker.) There may be several observers; each change goes to all of them,
// in the order in which they registered, before the next change goes to any.
//
// f runs with no lock held and may call any method of b. Calls of f are one at a
// time and in the order of the changes, on whichever goroutine delivers them: one
// that has made an input, but not always the input that caused the change, and
// possibly after that one has returned. If f panics, the panic is recovered and
// counted in ObserverPanics, and delivery goes on. An observer cannot be removed.
// Safe for concurrent use.
func (b *Breaker) Observe(f func(at time.Time, ch Change)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observers = append(b.observers, f)
}

// ObserverPanics returns how often an observer has panicked. Safe for concurrent
// use.
func (b *Breaker) ObserverPanics() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.panics
}

// deliver hands all waiting changes to the observers, unless another call of it
// is doing so: that one, which may be further up this very stack, will see what
// was queued meanwhile, as it looks under the lock before it stops.
func (b *Breaker) deliver() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.delivering {
		return
	}
	b.delivering = true
	// Deferred because an observer may end the goroutine (runtime.Goexit, a
	// failed test); the next input then carries on.
	defer func() { b.delivering = false }()
	for {
		ch, ok := b.core.Pop()
		if !ok {
			return
		}
		at := b.base.Add(time.Duration(ch.At))
		for _, f := range b.observers {
			b.call(f, at, ch)
		}
	}
}

// call runs one observer without the lock. b.mu held before and after.
func (b *Breaker) call(f func(time.Time, Change), at time.Time, ch Change) {
	panicked := true
	b.mu.Unlock()
	defer func() {
		// A Goexit cannot be recovered and is not counted.
		if panicked && recover() != nil {
			b.mu.Lock()
			b.panics++
			return
		}
		b.mu.Lock()
	}()
	f(at, ch)
	panicked = false
}
