/** What k6 has of it; @types/k6 leaves it to the types of a browser. */
declare const console: Record<'debug' | 'error' | 'info' | 'log' | 'warn', (...values: unknown[]) => void>;
