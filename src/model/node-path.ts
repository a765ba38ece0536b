import { hash } from 'node:crypto';
import { getOrMake } from './maps.ts';
import { unquoted } from './text.ts';

/** A step below `node`: `.key`, or `["key"]` for a key with dots, as Kubernetes labels have them. */
const step = /\.(?<plain>[^.]*?)(?=\.|\["|$)|\[(?<quoted>"(?:[^"\\]|\\.)*")\]/y;

/** In characters. */
export const longestPath = 1024;

/** `node.metadata.a["b.c"]` as its steps below `node`; undefined: it is no path, or too long. */
export function nodePath(text: string): readonly string[] | undefined {
  if (!text.startsWith('node') || text.length > longestPath) return undefined;
  const steps: string[] = [];
  for (let at = 'node'.length; at < text.length; at = step.lastIndex) {
    step.lastIndex = at;
    const found = step.exec(text)?.groups;
    const key = found?.['plain'] ?? unquoted(found?.['quoted'] ?? '');
    if (key === undefined || key === '') return undefined;
    steps.push(key);
  }
  return steps.length === 0 ? undefined : steps;
}

const pathAndTemplate = /^(?<path>(?:[^="]|"(?:[^"\\]|\\.)*")*)(?:=(?<template>.*))?$/s;

/**
 * Where a rule shows a parameter, and as what: `PATH` or `PATH=TEMPLATE`, such as `x.${key}`. Without a template: the value
 * of the rule's own parameter.
 */
export function parseShown(to: string): { readonly path: string; readonly template: string | undefined } {
  const { path = to, template } = pathAndTemplate.exec(to)?.groups ?? {};
  return { path, template };
}

const reference = /\$\{([^}]*)\}/g;

/** The parameters that a template names. */
export const templateKeys = (template: string): readonly string[] =>
  [...template.matchAll(reference)].map(([, key = '']) => key);

/** The template with its parameters; undefined: one of them is not there. */
export function fillTemplate(template: string, values: ReadonlyMap<string, string>): string | undefined {
  if (templateKeys(template).some((key) => !values.has(key))) return undefined;
  return template.replaceAll(reference, (_, key: string) => values.get(key) ?? '');
}

/** The metadata that is read of a node, key by key; nothing is wanted below an empty map but the text itself. */
export type WantedMetadata = ReadonlyMap<string, WantedMetadata>;

/** What these paths read of the metadata: `node.metadata.a.b` wants `b` below `a`. Other paths want none. */
export function wantedMetadata(paths: Iterable<string>): WantedMetadata {
  const wanted: Tree = new Map();
  for (const path of paths) {
    const [metadata, ...keys] = nodePath(path) ?? [];
    if (metadata !== 'metadata') continue;
    let level = wanted;
    for (const key of keys) level = getOrMake(level, key, () => new Map());
  }
  return wanted;
}

type Tree = Map<string, Tree>;

/** Bytes of a node's id and of its cluster: they are kept for each client, and in lists of nodes. */
export const mostNodeText = 1024;

/**
 * Where a node stands among all: 0 or more, less than 1. The same node always stands at the same place, so a larger
 * share of the nodes only adds to it.
 */
export function placeOf(nodeId: string): number {
  return Number.parseInt(hash('sha256', nodeId, 'hex').slice(0, 12), 16) / 2 ** 48;
}
