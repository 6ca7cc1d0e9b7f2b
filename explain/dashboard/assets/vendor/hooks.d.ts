type Off = void | (() => void);
export function useState<T>(first: T | (() => T)): [T, (next: T | ((old: T) => T)) => void];
export function useEffect(run: () => Off, inputs?: readonly unknown[]): void;
export function useLayoutEffect(run: () => Off, inputs?: readonly unknown[]): void;
export function useRef<T>(first: T): { current: T };
export function useMemo<T>(make: () => T, inputs?: readonly unknown[]): T;
export function useCallback<T extends Function>(call: T, inputs?: readonly unknown[]): T;
