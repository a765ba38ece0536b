/** What an operator reads and types where a change waits for canaries that are away. */
export const noCanary = 'no canary is connected';
export const releaseCommand = 'distributary release --reason "…"';
