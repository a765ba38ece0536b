/** What several sources give, as it comes: one item of each waits, so that a slow reader holds back all of them. */
export async function* merged<T>(sources: readonly AsyncIterable<T>[]): AsyncIterable<T> {
  const iterators = sources.map((source) => source[Symbol.asyncIterator]());
  const pending = new Map(iterators.map((iterator) => [iterator, next(iterator)]));
  try {
    while (pending.size > 0) {
      const { iterator, result } = await Promise.race(pending.values());
      if (result.done === true) {
        pending.delete(iterator);
        continue;
      }
      pending.set(iterator, next(iterator));
      yield result.value;
    }
  } finally {
    for (const iterator of pending.keys()) void iterator.return?.();
  }
}

async function next<T>(iterator: AsyncIterator<T>) {
  return { iterator, result: await iterator.next() };
}
