import { brotliDecompressSync } from 'node:zlib';

/** What `npm run fuzz` found once, each by a name that says what it did. */
export const known: readonly { readonly name: string; readonly subject: string; readonly input: Buffer }[] = [
  {
    name: 'a list of thousands of wrong entries took 0.2 ms each, more the longer it was',
    subject: 'configuration',
    input: Buffer.from(`upstreams: [${'a,'.repeat(3000)}]`),
  },
  {
    name: 'metadata of a resource that cannot be decoded went on to clients, who refused the whole response',
    subject: 'delta responses',
    input: Buffer.from(
      'CgExEkQSPwozdHlwZS5nb29nbGVhcGlzLmNvbS9lbnZveS5jb25maWcuY2x1c3Rlci52My5DbHVzdGVyEggKAWEaA29uZRoBYRJHSgE3Ej8KM3R5cGUuZ29vZ2xlYXBpcy5jb20vZW52b3kuY29uZmlnLmNsdXN0ZXIudjMuQ2x1c3RlchIICgFiGgN0d28aAWIiM3R5cGUuZ29vZ2xlYXBpcy5jb20vZW52b3kuY29uZmlnLmNsdXN0ZXIudjMuQ2x1c3RlcioBMQ==',
      'base64',
    ),
  },
  {
    name: 'a damaged index broke a constraint, and the file was opened again for ever and never written',
    subject: 'the database file',
    input: brotliDecompressSync(
      Buffer.from(
        'G///AI7TBfUiSyY886H9cO++6Vy8idr9SVKrawtR0cYSkonQza7GUkC62eDzAYa4AHAUIJSmFarO1Yj831qrJ6kQGiVovNAoeW/+zp6ZJnwWWQ5P2ghJNIpZJxRCIxQete3hIRIiz2FW9r3O4k9NEqErztyNqa/9CYQ0A+EtWJ4NGAY5PigPYABIMGrxADhYQPwtAbr6Dw7z4OIMok7e6OYPiNopjC/mk9FtvNYP9AQUXz0AAFtQd1F0dmzOt1ybLfAFcnRVlw1wNgxlLMIG0HCFz86yFv4OV5mO7buezX8ZR1nFsI/QOCKJ7SCgcdBxvXz1fgiLsbweR9LVdfqDoy2XLSt8fBLfSgTn4KH82caYc9eeNd9Uvxp3YNH8eqlLcwxDNkv6nYlevUT+LWh4Jpm4q+XFFExWe/FJnySisoQgpDOmDODZS9FlUGvBlyodAAcnKUT6x57gSVJaPRwTsxcmtIlBM9a/fTW3xdzPQtHZvTOf2hcL+8XWyqKiyAphDWs9LoccEQnG08idHTrKkX/bq5mctk5kigTn3M58LJSxB3s/Lkn5q1kOOOZh+UVm8oppExGdjUn56yqZwTJIAVl7XsnQhkVYKhWSJbDhp9uIZweIGrXKWb1D65+sfmQw/N+0iVKn04MUgPJLlCgQnDNbaUFXExWxagvb90L9ApK8DeOZvqJ90iz1v7In/0PyLQEAxg5jkgR3ykeGF8twkFoqWqQWsrtrB4Kmsrh9vHOW7a06KLEKHrPs2xlypV68fgmSsSHZlOUCIr4tjACBqzxsJMGGGqIET8qXVhbJnThLd8NvcBIdpOHbt+8QjrLI0yeyC23UVf/jB5gvQETmiQH6Ca1a1amjHBE7trwS/4S/1rAgZypqv5HNCRE5O0pPlgsQJhYcwMi3CwjHaOgF3FvD7MrBs2n68SisPpn3S0+Pv06Pj0OaXI7jDANG/tb/IxnDaTjald1JUZjiUgfQGXTKCFFGMImFUFrgwqJcCL6xLZ2xkI5C5qD/8QOBGy3PCkaARi4Vw8HruCzNMovYEBmkws44bkUQ2EjpSYzeCsMidiJKSzUjAUen2DKkwW6u2YOYjTicwo8rs3jjD7qm4CtB89h6viimEKogSURvrHoHbcDAOH0gnYStBlJXRfLUy4X+muTh7O3N3y5OhPtkJlVU8bG4v2sWelPfC4//S8nUnj3JJ6HCEfo0sW5LB7Jq2aFvFnGLq+WH8b9WNpOzaO36LF/j+xp6Uc3ZqnSTUglTeS+zzIOTVAjOleBaGxyZ9MJpZv2hRgvGyZNxZjkTAStvvNQhSBwxwYwGQeHqx1UedpN+frDGCRWbims0++7J9BhCKWPeesWJ5hZrha3zVnCOlf3xIWIeYhTKSGIkF4E5s4ypZXSZcUVNgAdkH7N+KAAkfQJmrLGlP5kP5qKRbHxE8hMFAIaxTeDzVRs5OMv6BX5elZODs7RKYNRVAzk5S1oFPlSV5R8yxTW8+yTBuWcvxYtKec/J3HLNR1pthXm852Qt4f0YC3KjaSp5Y1sNgDU6YS4YX6y8gwGAsUapwfJUp17rsUxYRQar4ZCGcoWd7XaP2SSeskymRlVaE2G8K+Jb3cGGUoXkRBAnJpxK87kBYft6sQoA1oyGeWv50zYAMKdhzGohR3XCzFAVxsQpB8JQUACjKnMQuvIA5NNWvtsAAOTk2KQCxDSqDFB7uQycAn9uALAOgOQ/4/2VTHXXC6sDxLzCB690AHB6UScRQDMJt+hnD3UIyM2ui7oBWmcB6gcAqXgA6fonkaD3HxSAhPzuCLn+k7kAlLXYvw19APjlgQHwmT5sTL/PBwBkAg==',
        'base64',
      ),
    ),
  },
];
