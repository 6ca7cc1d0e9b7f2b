export interface ReadonlySignal<T> { readonly value: T; peek(): T; subscribe(call: (value: T) => void): () => void }
export interface Signal<T> extends ReadonlySignal<T> { value: T }
export function signal<T>(first: T): Signal<T>;
export function computed<T>(make: () => T): ReadonlySignal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
export function useSignal<T>(first: T): Signal<T>;
export function useComputed<T>(make: () => T): ReadonlySignal<T>;
export function useSignalEffect(run: () => void | (() => void)): void;
